//! Any bytes as the recording of a world: nothing panics, refusals are one sentence, and what is read can be
//! printed.

use std::io::Cursor;
use std::path::Path;

use pumice_world::Recording;

/// How much of the input meant something.
pub(crate) fn survive(bytes: &[u8]) -> usize {
    let mut recording = match Recording::read(Path::new("x.world"), Cursor::new(bytes.to_vec())) {
        Ok(recording) => recording,
        Err(sentence) => {
            assert!(!sentence.is_empty() && !sentence.contains(char::is_control), "{sentence:?}");
            return 0;
        }
    };
    let options = recording.header.options();
    assert!(!options.arguments.is_empty() && options.draws.switch_ppm <= 1_000_000);
    let _ = (recording.header.command(), recording.header.folder(), recording.header.other_variables());
    let mut events = 0;
    while let Some(event) = recording.next_event() {
        assert!(!event.contains(char::is_control), "{event:?}");
        events += 1;
    }
    assert!(events <= bytes.len());
    1 + events
}
