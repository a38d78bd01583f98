use serde_json::Value;

use pumice_platform::call_stack::Stack;

use super::kind::{CQ_TOO_SMALL, KINDS, OBJECTS_LEFT};
use super::recorded::{
    Format, Frame, RelatedCallSite, ReportEntry, ReportHeader, document, paragraphs, summary,
};
use super::*;

fn an_entry() -> ReportEntry {
    let recorded = RecordedFinding {
        kind: &CQ_TOO_SMALL,
        call_site: Stack::default(),
        object: "completion queue 0".to_owned(),
        numbers: "completion queue 0 has room for 1 completion".to_owned(),
        related: vec![RelatedCallSite { what: "it was made here".to_owned(), call_site: Stack::default() }],
        count: 3,
    };
    let frame = Frame {
        function: Some("post".to_owned()),
        object: "server".to_owned(),
        offset: 0x40,
        ..Frame::default()
    };
    ReportEntry::new(recorded, |_| vec![frame.clone()])
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
    assert!(text.contains("  it was made here: post (server+0x40)\n"), "{text}");
    let about = ReportHeader { suppressed: 2, ..ReportHeader::default() };
    assert_eq!(
        summary(&[an_entry()], &about),
        "check: 1 finding\n  cq-too-small: completion queue 0 at post (server+0x40), 3 times\n  2 more are \
         suppressed"
    );
}

#[test]
fn sarif_has_all_kinds_as_rules() {
    let log = document(&[an_entry()], &ReportHeader::default(), Format::Sarif);
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

#[test]
fn objects_that_were_left_are_one_paragraph() {
    let left = |object: &str| {
        let mut entry = an_entry();
        entry.finding.kind = &OBJECTS_LEFT;
        entry.finding.object = object.to_owned();
        entry
    };
    let all = [left("context 0"), an_entry(), left("queue pair 0"), left("queue pair 1")];
    let [other, text] = &paragraphs(&all)[..] else { panic!("two paragraphs") };
    assert!(other.starts_with("cq-too-small: "), "{other}");
    let named = "; and so were queue pair 0 at post (server+0x40), queue pair 1 at post (server+0x40)\n";
    assert!(text.starts_with("objects-left: ") && text.contains(named), "{text}");
    assert!(text.lines().count() <= 8, "{text}");
    let many: Vec<ReportEntry> = (0..9).map(|number| left(&format!("queue pair {number}"))).collect();
    assert!(paragraphs(&many)[0].contains(" and 2 more\n"));
}
