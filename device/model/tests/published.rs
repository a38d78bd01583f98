//! What the built-in models say, beside figures that others have published.

use std::fmt::Write as _;

use pumice_model::performance::PerformanceModel;
use pumice_model::performance::sum::Measured;

/// A published figure, and what a model says.
struct Compared {
    line: String,
    /// Predicted divided by published, if the figure counts.
    ratio: Option<f64>,
}

fn compared(row: &str) -> Compared {
    let fields: Vec<&str> = row.split('\t').collect();
    let [source, model, measured, bytes, pairs, published, unit, reason @ ..] = fields.as_slice() else {
        panic!("seven columns: {row}");
    };
    let (name, placement) = model.split_once(':').map_or((*model, None), |(name, at)| (name, Some(at)));
    let built_in = PerformanceModel::built_in(name).expect("the model is built in");
    let built_in =
        placement.map_or(Ok(built_in.clone()), |at| built_in.placed(at)).expect("it is a placement");
    let of = match *measured {
        "send" => Measured::Send,
        "write" => Measured::Write,
        "read" => Measured::Read,
        "atomic" => Measured::Atomic,
        other => panic!("{other} is no operation"),
    };
    let number = |text: &str| text.parse::<u64>().expect("a whole number");
    let (bytes, pairs) = (number(bytes), number(pairs) as u32);
    let per_second = 1e9 / built_in.interval_ns(of, bytes, pairs);
    let predicted = match *unit {
        "us" => built_in.latency_ns(of, bytes) / 1e3,
        "M/s" => per_second / 1e6,
        "MiB/s" => per_second * bytes as f64 / f64::from(1 << 20),
        "Gb/s" => per_second * bytes as f64 * 8.0 / 1e9,
        other => panic!("{other} is no unit"),
    };
    let published: f64 = published.parse().expect("a number");
    let ratio = predicted / published;
    let note = reason.first().map_or(String::new(), |reason| format!("  does not count: {reason}"));
    let line = format!(
        "{source:<4} {model:<20} {measured:<6} {bytes:>8} {pairs:>2} {published:>9} {predicted:>9.2} \
         {unit:<5} {ratio:.3}{note}"
    );
    Compared { line, ratio: reason.is_empty().then_some(ratio) }
}

#[test]
fn models_say_what_others_have_measured() {
    let rows = include_str!("published.tsv").lines().filter(|line| !line.starts_with('#'));
    let all: Vec<Compared> = rows.map(compared).collect();
    let mut table = "source model         measured  bytes pairs published predicted unit  ratio\n".to_owned();
    for one in &all {
        let _ = writeln!(table, "{}", one.line);
    }
    let mut off: Vec<f64> = all.iter().filter_map(|one| Some((one.ratio? - 1.0).abs())).collect();
    off.sort_by(f64::total_cmp);
    let (median, worst) = (off[off.len() / 2], off[off.len() - 1]);
    eprintln!("{table}{} figures count: median {:.1} %, worst {:.1} %", off.len(), median * 1e2, worst * 1e2);
    assert!(off.len() >= 90, "{}", off.len());
    assert!(median <= 0.08 && worst <= 0.30, "{table}");
}
