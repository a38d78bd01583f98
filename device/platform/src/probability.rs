//! Probabilities as people write them: "1%", "0.01", "1e-3".

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

#[cfg(test)]
mod tests {
    use super::probability_ppm;

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
}
