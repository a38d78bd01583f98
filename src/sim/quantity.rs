//! Parses quantities as people write them: "1%", "1e-3", "100us", "10G", "64K".

/// Splits a text into the decimal number in front, and what follows it.
fn split(text: &str) -> (&str, &str) {
    let text = text.trim();
    let mut end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    // An exponent belongs to the number only if digits follow.
    let rest = &text[end..];
    if let Some(exponent) = rest.strip_prefix(['e', 'E']) {
        let signed = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
        let digits = signed.len() - signed.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        if digits > 0 {
            end = text.len() - signed.len() + digits;
        }
    }
    (&text[..end], text[end..].trim())
}

fn scaled(number: &str, scale: f64) -> Option<u64> {
    let value = number.parse::<f64>().ok()? * scale;
    (value.is_finite() && (0.0..1e18).contains(&value)).then(|| value.round() as u64)
}

/// Parses a probability, in parts per million.
pub(crate) fn probability_ppm(text: &str) -> Result<u32, String> {
    pumice_device::settings::probability_ppm(text).map_err(|problem| format!("\"{text}\": {problem}"))
}

/// Parses a duration, in ns.
pub(crate) fn duration_ns(text: &str) -> Result<u64, String> {
    let wrong = || format!("\"{text}\" is not a duration: write it as 500ns, 10us, 1.5ms or 1s");
    let (number, unit) = split(text);
    let scale = match unit {
        "ns" => 1.0,
        "us" | "µs" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        "" if number == "0" => 1.0,
        _ => return Err(wrong()),
    };
    scaled(number, scale).filter(|ns| *ns <= 3_600_000_000_000).ok_or_else(wrong)
}

/// Parses a rate, in bits per second.
pub(crate) fn bits_per_second(text: &str) -> Result<u64, String> {
    let wrong = || format!("\"{text}\" is not a rate in bits per second: write it as 100M, 10G or 2.5G");
    let (number, unit) = split(text);
    let scale = match unit.strip_suffix("bit").or(unit.strip_suffix("b/s")).unwrap_or(unit).trim() {
        "K" | "k" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        "T" => 1e12,
        "" => 1.0,
        _ => return Err(wrong()),
    };
    scaled(number, scale).filter(|rate| *rate >= 1000).ok_or_else(wrong)
}

/// Parses a size, in bytes.
pub(crate) fn bytes(text: &str) -> Result<u32, String> {
    let wrong = || format!("\"{text}\" is not a size in bytes: write it as 64, 4K or 1M (at most 1G)");
    let (number, unit) = split(text);
    let scale = match unit.strip_suffix("iB").unwrap_or(unit) {
        "" => 1.0,
        "K" | "k" => 1024.0,
        "M" => 1_048_576.0,
        "G" => 1_073_741_824.0,
        _ => return Err(wrong()),
    };
    let size = scaled(number, scale).filter(|size| *size <= 1 << 30).ok_or_else(wrong)?;
    u32::try_from(size).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities_are_read_as_people_write_them() {
        for (text, ppm) in [
            ("1%", 10_000),
            ("0.5%", 5_000),
            ("1e-3", 1_000),
            ("0", 0),
            ("100%", 1_000_000),
            ("0.01", 10_000),
            ("2 %", 20_000),
            ("1e1%", 100_000),
        ] {
            assert_eq!(probability_ppm(text), Ok(ppm), "{text}");
        }
        for text in ["", "x", "-1%", "101%", "5", "1%%", "nan", "1e", "1/2"] {
            let error = probability_ppm(text).unwrap_err();
            assert!(error.contains(text), "{error}");
        }
        assert!(probability_ppm("5").unwrap_err().contains("percentage"));
    }

    #[test]
    fn durations_rates_and_sizes_have_units() {
        assert_eq!(duration_ns("1.5ms"), Ok(1_500_000));
        assert_eq!(duration_ns("500ns"), Ok(500));
        assert_eq!(duration_ns("0"), Ok(0));
        assert!(duration_ns("5").is_err() && duration_ns("1h").is_err() && duration_ns("99999s").is_err());
        assert_eq!(bits_per_second("2.5G"), Ok(2_500_000_000));
        assert_eq!(bits_per_second("10Gbit"), Ok(10_000_000_000));
        assert!(bits_per_second("0").is_err() && bits_per_second("fast").is_err());
        assert_eq!(bytes("64K"), Ok(65_536));
        assert_eq!(bytes("1GiB"), Ok(1 << 30));
        assert!(bytes("2G").is_err() && bytes("-1").is_err());
    }
}
