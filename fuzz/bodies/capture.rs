//! Any bytes as a capture file: nothing panics, and every packet that is found can be shown as text and as
//! JSON.

use super::decode::{Decoded, decode};
use super::file::for_each_frame;

/// How much of the input meant something.
pub(crate) fn survive(bytes: &[u8]) -> usize {
    let mut shown = 0;
    let _ = for_each_frame(bytes, |frame| {
        let Decoded::Roce(records) = decode(frame) else { return Ok(()) };
        for record in &records {
            shown += 1;
            let mut text = Vec::new();
            record.write_text(0, &mut text)?;
            assert!(text.ends_with(b"\n") && std::str::from_utf8(&text).is_ok());
            let json = serde_json::to_string(record)?;
            serde_json::from_str::<serde_json::Value>(&json)?;
        }
        Ok::<(), std::io::Error>(())
    });
    shown
}
