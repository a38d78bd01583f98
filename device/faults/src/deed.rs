//! What a rule did, in words.

use pumice_ground::ordinal::Ordinal;

use super::answer::answer_word;
use super::decide::Fired;

impl Fired<'_> {
    /// What happens, as a verb whose object is a packet.
    pub fn deed(&self) -> String {
        let (fate, mut done) = (self.fate, Vec::new());
        let mut say = |happens: bool, text: String| {
            if happens {
                done.push(text);
            }
        };
        say(self.partition_ns.is_some(), "begins a partition from".to_owned());
        let refusal = fate.refused.and_then(answer_word);
        let is_refused = refusal.is_some() || fate.rejected.is_some();
        let has_more = self.partition_ns.is_some() || self.incident.is_some() || is_refused;
        say(fate.rejected.is_some(), format!("rejects (reason {})", fate.rejected.unwrap_or(0)));
        say(
            self.incident.is_some(),
            self.incident.map_or_else(String::new, |incident| format!("has {incident} happen before")),
        );
        say(fate.lost && !has_more, "loses".to_owned());
        say(refusal.is_some(), format!("answers {} to", refusal.unwrap_or_default()));
        say(fate.notified, "answers cnp to".to_owned());
        say(fate.copies > 0, format!("sends {} more of", fate.copies));
        say(fate.delay_ns > 0, format!("delays by {} us", fate.delay_ns / 1000));
        say(fate.behind_packets > 0, format!("puts behind {} packets", fate.behind_packets));
        say(fate.flips.is_some(), "corrupts".to_owned());
        say(fate.kept_bytes.is_some(), format!("cuts to {} bytes", fate.kept_bytes.unwrap_or(0)));
        say(fate.marked, "marks".to_owned());
        say(self.noted_bytes.is_some(), "notes".to_owned());
        done.join(", ")
    }

    /// What a capture says of the packet.
    pub fn note(&self) -> String {
        let Fired { rule, key, .. } = self;
        format!(
            "fault \"{rule}\" {} {} of message {}, packet {}, transmission {} (queue pair {}, connection {})",
            self.deed(),
            key.class.name(),
            key.message,
            key.packet,
            key.transmission,
            Ordinal(key.qp),
            Ordinal(key.connection)
        )
    }
}
