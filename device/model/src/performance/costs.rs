//! What a device in a world charges: a performance model as a row of whole numbers, which fits a variable of
//! the environment.

use super::keys::Key;
use super::model::PerformanceModel;
use super::sum::PCIE_SHARE;

/// A number of [`Costs`]. Times are in ps, those of a byte in fs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)] // the names of the keys of a model
pub enum Cost {
    Post,
    Poll,
    Register,
    /// The first packet of a message that carries data, from the beginning of the call that posts it.
    Request,
    InlineBytes,
    Fetch,
    /// A packet behind the first.
    Later,
    Byte,
    /// The first packet of the response of a READ.
    Read,
    /// The response of an atomic.
    Atomic,
    Acknowledge,
    Message,
    AdapterMessage,
    Packet,
    LinkByte,
    HeaderBytes,
    PcieByte,
    ReadByte,
    AtomicSerial,
    Contexts,
    ContextMiss,
}

const COUNT: usize = Cost::ContextMiss as usize + 1;
/// Largest number, which leaves room for sums.
const MAX_COST: u64 = 1 << 50;

/// The costs of calls and packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Costs([u64; COUNT]);

impl Costs {
    /// Returns a number.
    #[inline]
    pub fn get(&self, cost: Cost) -> u64 {
        self.0.get(cost as usize).copied().unwrap_or(0)
    }

    /// Returns the costs of a model.
    pub fn of(model: &PerformanceModel) -> Costs {
        let sum = |keys: &[Key]| keys.iter().map(|key| model.value(*key)).sum::<f64>();
        let network = [Key::Cable, Key::Switch];
        let network_ns = sum(&network);
        let request = [Key::Post, Key::Doorbell, Key::Send, Key::Virtual, Key::Receive];
        let byte_fs = |rate: f64| if rate > 0.0 { 8.0e6 / rate } else { 0.0 };
        let mut costs = Costs([0; COUNT]);
        let mut set = |cost: Cost, value: f64| {
            if let Some(place) = costs.0.get_mut(cost as usize) {
                *place = (value.round() as u64).min(MAX_COST);
            }
        };
        let in_ps = [
            (Cost::Post, model.value(Key::Post)),
            (Cost::Poll, model.value(Key::Poll)),
            (Cost::Register, model.value(Key::Register)),
            (Cost::Request, sum(&request) + network_ns),
            (Cost::Fetch, model.value(Key::Fetch)),
            (Cost::Later, sum(&[Key::Send, Key::Receive]) + network_ns),
            (Cost::Read, model.value(Key::Read) + network_ns),
            (Cost::Atomic, model.value(Key::Atomic) + network_ns),
            (Cost::Acknowledge, model.value(Key::Acknowledge) + network_ns),
            (Cost::Message, model.value(Key::Message)),
            (Cost::AdapterMessage, model.value(Key::AdapterMessage)),
            (Cost::Packet, model.value(Key::Packet)),
            (Cost::AtomicSerial, model.value(Key::AtomicSerial)),
            (Cost::ContextMiss, model.value(Key::ContextMiss)),
        ];
        in_ps.into_iter().for_each(|(cost, ns)| set(cost, ns * 1e3));
        set(Cost::Byte, model.value(Key::Byte) * 1e6);
        set(Cost::LinkByte, byte_fs(model.value(Key::RateGbit)));
        set(Cost::PcieByte, byte_fs(model.value(Key::PcieGbit)) / PCIE_SHARE);
        set(Cost::ReadByte, byte_fs(model.value(Key::ReadGbit)));
        set(Cost::InlineBytes, model.value(Key::InlineBytes));
        set(Cost::HeaderBytes, model.value(Key::HeaderBytes));
        set(Cost::Contexts, model.value(Key::Contexts));
        costs
    }

    /// Returns how long the adapter reads a message from memory, in ns.
    pub fn fetch_ns(&self) -> u64 {
        self.get(Cost::Fetch).saturating_add(500) / 1000
    }

    /// Returns the numbers as a text without spaces.
    pub fn text(&self) -> String {
        let numbers: Vec<String> = self.0.iter().map(u64::to_string).collect();
        numbers.join(",")
    }

    /// Reads what [`Costs::text`] has written; `None` for another text.
    pub fn parse(text: &str) -> Option<Costs> {
        let mut costs = Costs([0; COUNT]);
        let mut numbers = text.split(',');
        for place in &mut costs.0 {
            *place = numbers.next()?.parse().ok().filter(|number| *number <= MAX_COST)?;
        }
        numbers.next().is_none().then_some(costs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_costs_is_read_again() {
        for built_in in super::super::BUILT_IN_MODELS {
            let model = PerformanceModel::parse(built_in.text).expect("it is right");
            let costs = Costs::of(&model);
            assert_eq!(Costs::parse(&costs.text()), Some(costs), "{}", model.name);
        }
        assert_eq!([Costs::parse("1"), Costs::parse(""), Costs::parse("x")], [None; 3]);
        let long = format!("{},1", Costs([0; COUNT]).text());
        assert_eq!(Costs::parse(&long), None);
    }
}
