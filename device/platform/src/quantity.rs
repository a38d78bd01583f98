//! Rates, sizes, times and probabilities as people write them, and names that are similar to a wrong one.

/// The least similarity of two names: 1 is the same.
const ALIKE: f64 = 0.7;

/// Returns the name that is most similar to the given one, if one is similar at all; never the given one
/// itself.
pub fn similar<'a>(given: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let given = given.to_ascii_lowercase();
    let scored = names
        .into_iter()
        .map(|name| (strsim::normalized_damerau_levenshtein(&given, &name.to_ascii_lowercase()), name));
    let alike = scored.filter(|(score, _)| (ALIKE..1.0).contains(score));
    // Of several that are equally similar, the first one is returned.
    alike.reduce(|best, next| if next.0 > best.0 { next } else { best }).map(|(_, name)| name)
}

/// Returns the most similar name as a part of a sentence: empty, or `; did you mean NAME?`.
pub fn suggestion<'a>(given: &str, names: impl IntoIterator<Item = &'a str>) -> String {
    similar(given, names).map_or_else(String::new, |name| format!("; did you mean {name}?"))
}

/// Parses a probability, and returns parts per million.
///
/// # Errors
/// The text is not a number, or not from 0 to 100 %, or a plain 1, which people write for either; the
/// sentence says how to write it.
pub fn probability_ppm(text: &str) -> Result<u32, String> {
    let wrong = || "it is not a probability: write it as 1%, 0.5% or 1e-3".to_owned();
    let trimmed = text.trim();
    let (number, scale, percent) = match trimmed.strip_suffix('%') {
        Some(number) => (number.trim_end(), 1e4, true),
        None => (trimmed, 1e6, false),
    };
    // `parse` also takes signs, "inf" and "nan".
    if !number.starts_with(|first: char| first.is_ascii_digit() || first == '.') {
        return Err(wrong());
    }
    if trimmed == "1" {
        return Err("it is 1 % or all: write 1% for one in a hundred, or 100% for all".to_owned());
    }
    let ppm = number.parse::<f64>().map_err(|_| wrong())? * scale;
    if ppm > 1e6 {
        let hint = if percent { "" } else { "; did you mean a percentage, with % behind it?" };
        return Err(format!("it is more than 100 %{hint}"));
    }
    Ok(ppm.round() as u32)
}

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
    use super::{probability_ppm, *};

    #[test]
    fn a_slip_of_the_finger_is_known_and_another_word_is_not() {
        const NAMES: [&str; 3] = ["connectx", "dgx-h100", "rxe"];
        for (given, meant) in
            [("conectx", Some("connectx")), ("ConnectX5", Some("connectx")), ("dgxh100", Some("dgx-h100"))]
        {
            assert_eq!(similar(given, NAMES), meant, "{given}");
        }
        for given in ["", "mlx5", "profile.toml", "rxe"] {
            assert_eq!(similar(given, NAMES), None, "{given}");
        }
        assert_eq!(suggestion("rxee", NAMES), "; did you mean rxe?");
        assert_eq!(suggestion("x", NAMES), "");
    }

    #[test]
    fn probabilities_are_read_as_people_write_them() {
        for (text, ppm) in [
            ("1%", 10_000),
            ("0.5%", 5_000),
            (".5%", 5_000),
            ("1e-3", 1_000),
            ("0", 0),
            ("100%", 1_000_000),
            ("1.0", 1_000_000),
            ("0.01", 10_000),
            ("2 %", 20_000),
            ("1e1%", 100_000),
        ] {
            assert_eq!(probability_ppm(text), Ok(ppm), "{text}");
        }
        for text in ["", "x", "-1%", "+1%", "101%", "5", "1%%", "nan", "inf", "1e", "1/2", "%", "1e999"] {
            assert!(probability_ppm(text).is_err(), "{text}");
        }
        let sentence = probability_ppm("1").unwrap_err();
        assert!(sentence.contains("1%") && sentence.contains("100%"), "{sentence}");
        assert!(probability_ppm("5").unwrap_err().contains("percentage"));
    }

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
