//! Rates, sizes and times as people write them.

/// Parses a number and the unit behind it, and returns the product. Signs, "inf" and "nan" are no numbers.
pub fn scaled(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let (_, scale) = units.iter().find(|(name, _)| *name == unit.trim_start())?;
    Some(number.parse::<f64>().ok()? * scale)
}

/// Parses a rate in bits per second, from 1 Kbit to 10 Tbit.
pub fn rate(text: &str) -> Result<u64, String> {
    const UNITS: [(&str, f64); 8] = [
        ("Kbit", 1e3),
        ("Mbit", 1e6),
        ("Gbit", 1e9),
        ("Tbit", 1e12),
        ("K", 1e3),
        ("M", 1e6),
        ("G", 1e9),
        ("T", 1e12),
    ];
    let bits = text.trim().strip_suffix("/s").unwrap_or(text);
    scaled(bits, &UNITS)
        .filter(|rate| (1e3..=1e13).contains(rate))
        .map(|rate| rate.round() as u64)
        .ok_or_else(|| {
            format!("{text} is no rate from 1Kbit to 10Tbit in a second: write it as 10Gbit or 100Mbit")
        })
}

/// Parses a size in bytes.
pub fn size(text: &str) -> Option<u64> {
    const UNITS: [(&str, f64); 8] = [
        ("", 1.0),
        ("KiB", 1024.0),
        ("MiB", 1_048_576.0),
        ("GiB", 1_073_741_824.0),
        ("B", 1.0),
        ("K", 1024.0),
        ("M", 1_048_576.0),
        ("G", 1_073_741_824.0),
    ];
    scaled(text, &UNITS).filter(|bytes| *bytes < 1e15).map(|bytes| bytes.round() as u64)
}

/// Parses a time, and returns nanoseconds: "200us", "1.5ms", "2s".
pub fn time_ns(text: &str) -> Result<u64, String> {
    let wrong = || format!("{text} is no time: write it as 500ns, 200us, 1.5ms or 2s");
    let at = text.find(|c: char| c.is_ascii_alphabetic()).ok_or_else(wrong)?;
    let (number, unit) = text.split_at(at);
    let scale = match unit {
        "ns" => 1.0,
        "us" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        _ => return Err(wrong()),
    };
    if !number.trim().starts_with(|first: char| first.is_ascii_digit() || first == '.') {
        return Err(wrong());
    }
    let ns = number.trim().parse::<f64>().map_err(|_| wrong())? * scale;
    if ns > 1e15 { Err(format!("{text} is too long: write at most 1000000s")) } else { Ok(ns.round() as u64) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_and_sizes_have_units() {
        let rates = ["10Gbit", "2.5G", "100 Mbit/s", "1Kbit", "10Tbit"].map(|text| rate(text).unwrap());
        assert_eq!(rates, [10_000_000_000, 2_500_000_000, 100_000_000, 1_000, 10_000_000_000_000]);
        for text in ["", "10", "-1G", "0Gbit", "11Tbit", "fast", "1e3G", "1..2G", "10GB", "999"] {
            assert!(rate(text).is_err_and(|error| error.starts_with(text)), "{text}");
        }
        let sizes = ["256KiB", "64", "1.5 MiB", "1G", "8K"].map(|text| size(text).unwrap());
        assert_eq!(sizes, [262_144, 64, 1_572_864, 1 << 30, 8_192]);
        for text in ["", "-1", "64Kbit", "x", "nan", "999999999G"] {
            assert_eq!(size(text), None, "{text}");
        }
    }
}
