//! Rules about calls as one line: `call=ibv_reg_mr nth=2 errno=ENOMEM`.

use super::rule::{CallFault, CallRule, CallSelector, CallSteps};

impl CallRule {
    /// The rule of a line, which is the rule of this index in its plan.
    ///
    /// # Errors
    /// A word is no `key=value`, a key is not known or given twice, or a value is not what the key takes; or
    /// the rule makes no sense ([`CallRule::check`]). The sentence says what to write.
    pub fn parse(line: &str, index: usize) -> Result<CallRule, String> {
        let mut rule = CallRule {
            name: format!("rule {}", index + 1),
            selector: CallSelector::default(),
            steps: CallSteps::ALL,
            times: None,
            fault: CallFault::Fail { errno: None, force: false },
        };
        let (mut errno, mut force, mut known) = (None, false, Vec::new());
        for word in line.split([' ', ',']).filter(|word| !word.is_empty()) {
            let (key, value) = word.split_once('=').unwrap_or((word, "true"));
            if known.contains(&key) {
                return Err(format!("{key} is given twice"));
            }
            known.push(key);
            match key {
                "name" => value.clone_into(&mut rule.name),
                "call" => value.clone_into(&mut rule.selector.call),
                "tag" => rule.selector.tag = Some(value.to_owned()),
                "qp" => rule.selector.qp = Some(span(value)?),
                "nth" => {
                    let nth = number(key, value)?;
                    rule.steps = CallSteps { first: nth, last: nth, step: 1 };
                }
                "every" => {
                    let every = number(key, value)?;
                    rule.steps = CallSteps { first: every, last: u64::MAX, step: every };
                }
                "on" => rule.steps = steps(value)?,
                "times" => rule.times = Some(number(key, value)?),
                "errno" => errno = Some(value),
                "force" => force = value == "true",
                "delay" => rule.fault = CallFault::Delay { ns: duration_ns(value)? },
                _ => {
                    return Err(format!(
                        "{key} is no field of a rule about calls: they are name, call, tag, qp, nth, every, \
                         on, times, errno, force and delay"
                    ));
                }
            }
        }
        match rule.fault {
            CallFault::Delay { .. } if errno.is_some() => {
                return Err("a rule has an errno or a delay: make two rules".to_owned());
            }
            CallFault::Delay { .. } => {}
            CallFault::Fail { .. } => rule.fault = CallFault::failing(errno.unwrap_or("usual"), force)?,
        }
        rule.check()?;
        Ok(rule)
    }
}

fn number(key: &str, value: &str) -> Result<u64, String> {
    match value.parse() {
        Ok(number) if number > 0 => Ok(number),
        _ => Err(format!("{key} = {value}: write a whole number from 1")),
    }
}

/// `3`, `3..5`, `3..`: from where to where.
fn span(value: &str) -> Result<(u64, u64), String> {
    let parse = |text: &str| {
        text.parse::<u64>()
            .map_err(|_| format!("{value} is no number: write 3, 3..5 or 3.. for all from 3 on"))
    };
    match value.split_once("..") {
        None => parse(value).map(|one| (one, one)),
        Some((first, "")) => Ok((parse(first)?, u64::MAX)),
        Some((first, last)) => Ok((parse(first)?, parse(last)?)),
    }
}

/// `3..9+2`: every second one of them.
fn steps(value: &str) -> Result<CallSteps, String> {
    let (between, step) = match value.split_once('+') {
        None => (value, 1),
        Some((between, step)) => (between, number("step", step)?),
    };
    let (first, last) = span(between)?;
    if first == 0 || last < first {
        return Err(format!(
            "on = {value} meets no call: calls are counted from 1, the smaller number is first"
        ));
    }
    Ok(CallSteps { first, last, step })
}

/// `5ms`: a whole number and its unit.
fn duration_ns(value: &str) -> Result<u64, String> {
    let digits = value.trim_end_matches(|c: char| !c.is_ascii_digit());
    let factor = match value.get(digits.len()..) {
        Some("ns") => Some(1),
        Some("us") => Some(1_000),
        Some("ms") => Some(1_000_000),
        Some("s") => Some(1_000_000_000),
        _ => None,
    };
    let ns = digits.parse::<u64>().ok().zip(factor).and_then(|(number, factor)| number.checked_mul(factor));
    ns.ok_or_else(|| {
        format!("{value} is no time: write a whole number with ns, us, ms or s behind it, like 5ms")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_rule() {
        let rule = CallRule::parse("name=full, call=ibv_post_send, qp=3, on=2..8+3, times=1, errno=12", 0);
        let selector = CallSelector { tag: None, call: "ibv_post_send".to_owned(), qp: Some((3, 3)) };
        let steps = CallSteps { first: 2, last: 8, step: 3 };
        let fault = CallFault::Fail { errno: Some(libc::ENOMEM), force: false };
        assert_eq!(rule, Ok(CallRule { name: "full".to_owned(), selector, steps, times: Some(1), fault }));
        let slow = CallRule::parse("call=ibv_* delay=250us tag=serv*", 4).unwrap();
        assert_eq!((slow.name.as_str(), slow.fault), ("rule 5", CallFault::Delay { ns: 250_000 }));
    }

    #[test]
    fn wrong_lines_are_refused() {
        for (line, about) in [
            ("nth=1", "no call"),
            ("call=ibv_reg_mr nth=0", "from 1"),
            ("call=ibv_reg_mr nth=1 nth=2", "twice"),
            ("call=ibv_reg_mr when=1", "is no field"),
            ("call=ibv_reg_mr errno=ENOPE", "no errno"),
            ("call=ibv_reg_mr errno=ECONNREFUSED", "force = true"),
            ("call=ibv_reg_mr errno=EIO delay=1ms", "two rules"),
            ("call=ibv_reg_mr delay=1", "is no time"),
            ("call=ibv_reg_mr on=3..1", "meets no call"),
        ] {
            let sentence = CallRule::parse(line, 0).unwrap_err();
            assert!(sentence.contains(about), "{line}: {sentence}");
        }
        assert!(CallRule::parse("call=ibv_reg_mr errno=ECONNREFUSED force", 0).is_ok());
    }
}
