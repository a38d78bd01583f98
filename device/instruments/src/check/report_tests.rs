use serde_json::Value;

use pumice_ground::call_stack::Stack;

use super::kind::{CQ_TOO_SMALL, KINDS};
use super::recorded::Related;
use super::report::{About, Entry, Format, Frame, document, summary};
use super::*;

fn an_entry() -> Entry {
    let recorded = Recorded {
        kind: &CQ_TOO_SMALL,
        place: Stack::default(),
        object: "completion queue 0".to_owned(),
        numbers: "completion queue 0 has room for 1 completion".to_owned(),
        related: vec![Related { what: "it was made here".to_owned(), place: Stack::default() }],
        count: 3,
    };
    let frame = Frame {
        function: Some("post".to_owned()),
        object: "server".to_owned(),
        offset: 0x40,
        ..Frame::default()
    };
    Entry::new(recorded, |_| vec![frame.clone()])
}

#[test]
fn what_was_recorded_is_a_finding() {
    let finding = an_entry().to_finding();
    assert_eq!((finding.kind.name, finding.subject.as_str()), ("cq-too-small", "completion queue 0"));
    assert_eq!((finding.count, finding.remedy.as_deref()), (3, Some(CQ_TOO_SMALL.remedy)));
    assert_eq!(finding.site.frames.len(), 1);
    assert_eq!(finding.related[0].what, "it was made here");
    let text = an_entry().paragraph();
    assert!(text.starts_with("cq-too-small: completion queue 0 has room for 1"), "{text}");
    assert!(text.contains("  it was made here:\n    post (server+0x40)\n"), "{text}");
    let about = About { suppressed: 2, ..About::default() };
    assert_eq!(
        summary(&[an_entry()], &about),
        "check: 1 finding\n  cq-too-small: completion queue 0 at post (server+0x40), 3 times\n  2 more are \
         suppressed"
    );
}

#[test]
fn sarif_has_all_kinds_as_rules() {
    let log = document(&[an_entry()], &About::default(), Format::Sarif);
    let log: Value = serde_json::from_str(&log).unwrap();
    let driver = &log["runs"][0]["tool"]["driver"];
    assert_eq!(
        (&driver["name"], driver["rules"].as_array().unwrap().len()),
        (&"pumice check".into(), KINDS.len())
    );
    let slow =
        driver["rules"].as_array().unwrap().iter().filter(|rule| rule["properties"]["family"] == "slow");
    assert!(slow.clone().count() > 1);
    for rule in slow {
        assert_eq!(rule["defaultConfiguration"]["level"], "note");
    }
}
