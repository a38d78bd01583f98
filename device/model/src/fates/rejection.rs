//! The private data with which a fault plan rejects a connection request.

use pumice_transport::mad::PrivateData;

/// Room for private data in a REJ, in bytes.
pub const REJ_DATA_BYTES: usize = 148;

/// The private data of a REJ.
pub type RejData = PrivateData<REJ_DATA_BYTES>;

/// Reads the private data of a rejection: a text, or bytes in hexadecimal after `0x`.
///
/// # Errors
/// The text is too long, or its hexadecimal digits are no bytes.
pub fn private_data(text: &str) -> Result<RejData, String> {
    let bytes = match text.strip_prefix("0x") {
        Some(digits) => bytes_of(digits)
            .ok_or_else(|| format!("{text} is not bytes in hexadecimal: write two digits for each"))?,
        None => text.as_bytes().to_vec(),
    };
    PrivateData::new(&bytes).map_err(|error| format!("{error}: write less"))
}

fn bytes_of(digits: &str) -> Option<Vec<u8>> {
    let is_hex = digits.len().is_multiple_of(2) && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    let pairs = (0..digits.len()).step_by(2).map(|at| digits.get(at..at + 2));
    is_hex.then(|| pairs.map(|pair| u8::from_str_radix(pair?, 16).ok()).collect())?
}

/// Returns private data in hexadecimal, without the padding, as [`private_data`] reads it; `None` if there is
/// none.
pub fn private_data_text(data: &[u8]) -> Option<String> {
    let used = data.iter().rposition(|byte| *byte != 0)? + 1;
    let digits = data.iter().take(used).map(|byte| format!("{byte:02x}"));
    Some(digits.fold("0x".to_owned(), |text, pair| text + &pair))
}
