//! Families of metrics: a name, a kind, a unit and a sentence, and the samples of one scrape.

/// What the numbers of a family are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MetricKind {
    /// It only grows, or begins again at 0.
    Counter,
    /// It goes up and down.
    Gauge,
    /// Always 1: what matters is in the labels.
    Info,
}

/// A family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Family {
    /// Without the end that its kind gives to the names of samples.
    pub(crate) name: String,
    pub(crate) kind: MetricKind,
    pub(crate) help: &'static str,
}

/// The units that names of families may end with.
const UNITS: [&str; 4] = ["bytes", "packets", "seconds", "ratio"];

impl Family {
    pub(crate) fn new(name: impl Into<String>, kind: MetricKind, help: &'static str) -> Family {
        Family { name: name.into(), kind, help }
    }

    /// The unit, with which the name ends.
    pub(crate) fn unit(&self) -> Option<&'static str> {
        let last = self.name.rsplit('_').next();
        UNITS.into_iter().find(|unit| Some(*unit) == last)
    }

    /// The name of its samples.
    pub(crate) fn sample_name(&self) -> String {
        let end = match self.kind {
            MetricKind::Counter => "_total",
            MetricKind::Gauge => "",
            MetricKind::Info => "_info",
        };
        format!("{}{end}", self.name)
    }
}

/// A number.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Value {
    Count(u64),
    Real(f64),
}

impl From<u64> for Value {
    fn from(count: u64) -> Value {
        Value::Count(count)
    }
}

impl From<u32> for Value {
    fn from(count: u32) -> Value {
        Value::Count(count.into())
    }
}

impl From<bool> for Value {
    fn from(is: bool) -> Value {
        Value::Count(is.into())
    }
}

/// A number with its labels, as they stand between the braces.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Sample {
    pub(crate) labels: String,
    pub(crate) value: Value,
}

/// A family with its samples.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Group {
    pub(crate) family: Family,
    pub(crate) samples: Vec<Sample>,
}
