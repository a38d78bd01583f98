use std::path::Path;

use serde_json::Value;

use super::super::kind::{CQ_TOO_SMALL, KINDS};
use super::super::stack::Stack;
use super::*;

fn an_entry() -> Entry {
    let finding = Finding {
        kind: &CQ_TOO_SMALL,
        place: Stack::default(),
        object: "completion queue 0".to_owned(),
        numbers: "completion queue 0 has room for 1 completion".to_owned(),
        related: Vec::new(),
        count: 3,
    };
    let frame = |function: &str, line| Frame {
        function: Some(function.to_owned()),
        file: Some("/src/a b.c".to_owned()),
        line,
        object: "server".to_owned(),
        offset: 0x40,
    };
    let frames = vec![Frame { file: None, ..frame("post", None) }, frame("main", Some(7))];
    let related = vec![RelatedPlace { what: "it was made here".to_owned(), frames: frames.clone() }];
    Entry { finding, frames, related }
}

#[test]
fn text_says_what_where_why_and_the_remedy() {
    let text = text_entry(&an_entry());
    for part in [
        "cq-too-small: completion queue 0 has room for 1 completion\n    post (server+0x40)\n",
        "    main (/src/a b.c:7)\n  it was made here:\n    post (server+0x40)\n",
        CQ_TOO_SMALL.why,
        CQ_TOO_SMALL.remedy,
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    let about = About { suppressed: 2, ..About::default() };
    assert_eq!(
        text_summary(&[an_entry()], &about),
        "check: 1 finding\n  cq-too-small: completion queue 0 at post (server+0x40), 3 times\n  2 more are \
         suppressed"
    );
}

#[test]
fn json_has_every_field() {
    let report: Value = serde_json::from_str(&json(&[an_entry()], &About::default())).unwrap();
    let one = &report["findings"][0];
    assert_eq!((&one["kind"], &one["count"]), (&Value::from("cq-too-small"), &Value::from(3)));
    assert_eq!(one["stack"][1]["line"], 7);
    assert_eq!(one["related"][0]["stack"][0]["offset"], 0x40);
}

#[test]
fn sarif_has_what_its_schema_requires() {
    let about = About { program: "server".to_owned(), process: 7, is_whole: true, ..About::default() };
    let log: Value = serde_json::from_str(&sarif(&[an_entry()], &about)).unwrap();
    assert_eq!(log["version"], "2.1.0");
    let run = &log["runs"][0];
    let rules = run["tool"]["driver"]["rules"].as_array().unwrap();
    assert_eq!(rules.len(), KINDS.len());
    let result = &run["results"][0];
    let index = result["ruleIndex"].as_u64().unwrap() as usize;
    assert_eq!(rules[index]["id"], result["ruleId"]);
    assert!(result["message"]["text"].is_string());
    let physical = &result["locations"][0]["physicalLocation"];
    assert_eq!(physical["artifactLocation"]["uri"], "file:///src/a%20b.c");
    assert_eq!(physical["region"]["startLine"], 7);
    let stack = &result["stacks"][0]["frames"];
    assert_eq!(stack[0]["location"]["physicalLocation"]["address"]["relativeAddress"], 0x40);
    assert!(result["relatedLocations"][0]["message"]["text"].is_string());
}

#[test]
fn a_format_has_a_name_and_files_have_a_format() {
    assert_eq!(Format::of_file(Path::new("a/report.sarif")), Format::Sarif);
    assert_eq!(Format::of_file(Path::new("report.%p.json")), Format::Json);
    assert_eq!(Format::of_file(Path::new("report")), Format::Text);
    assert_eq!(Format::named("yaml"), None);
}
