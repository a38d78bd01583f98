//! "Did you mean": the known name that is most similar to an unknown one.

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

#[cfg(test)]
mod tests {
    use super::*;

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
}
