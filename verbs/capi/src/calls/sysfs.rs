//! The two calls about files of sysfs that libibverbs exports.

use std::ffi::{OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use pumice_calls::Call;
use pumice_device::outside;
use pumice_device::outside::fork_generation::InheritedOnce;

use crate::entry::arguments::{OutBytes, Text};
use crate::entry::outcome::number;
use crate::objects::device::devices;
use crate::platform::errno::{Errno, INVALID};

pub(crate) extern "C" fn ibv_get_sysfs_path() -> *const c_char {
    static PATH: InheritedOnce<std::ffi::CString> = InheritedOnce::new();
    PATH.get_or_init(|| {
        let mut path = outside::environment::variable("SYSFS_PATH")
            .unwrap_or_else(|| "/sys".into())
            .as_bytes()
            .to_owned();
        path.retain(|byte| *byte != 0);
        std::ffi::CString::new(path).unwrap_or_default()
    })
    .as_ptr()
}

/// Reads at most `size` bytes of `dir/file`, without a newline at their end, and terminates them with NUL if
/// there is room: returns their number, or -1.
pub(crate) extern "C" fn ibv_read_sysfs_file(
    dir: Text<'_>,
    file: Text<'_>,
    buf: OutBytes<'_>,
    size: usize,
) -> c_int {
    number(Call::ibv_read_sysfs_file, || {
        let (dir, file) = (dir.get()?, file.get()?);
        if buf.is_null() {
            return Err(INVALID);
        }
        let path = Path::new(OsStr::from_bytes(dir.to_bytes())).join(OsStr::from_bytes(file.to_bytes()));
        let mut text = match (outside::files::fact(&path), of_profile(&path)) {
            (Ok(text), _) => text,
            (Err(_), Some(text)) => text.into_bytes(),
            (Err(error), None) => return Err(Errno(error.raw_os_error().unwrap_or(libc::EIO))),
        };
        text.truncate(size);
        if text.last() == Some(&b'\n') {
            text.pop();
        }
        let mut elements = buf.elements(size)?;
        for byte in text.iter().chain([&0]) {
            // Without room there is no NUL.
            elements.put(*byte);
        }
        Ok(text.len() as c_int)
    })
}

/// Returns the contents that a device's file would have: `ibv_devinfo` asks for the board.
fn of_profile(path: &Path) -> Option<String> {
    let (folder, file) = (path.parent()?, path.file_name()?);
    if folder.parent()?.file_name()? != "infiniband" {
        return None;
    }
    let name = folder.file_name()?;
    let profile = devices().ok()?.iter().find(|device| name == device.name())?.profile();
    match file.to_str()? {
        "board_id" if !profile.board_id.is_empty() => Some(profile.board_id.clone()),
        "fw_ver" => Some(profile.fw_ver.clone()),
        "hw_rev" => Some(format!("{:x}", profile.hw_ver)),
        _ => None,
    }
}
