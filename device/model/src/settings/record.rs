//! The files of a record: a folder in which each process of a recorded run leaves its data.
//!
//! The names of the files begin with the number of the process, and their extensions tell the kind. A file of
//! a device other than the first has the name of the device in its name, too. A process with several devices
//! lists them, each by number and name; one without a list has one device, whose name is not recorded.

use std::io;
use std::path::{Path, PathBuf};

use pumice_platform::outside;
use pumice_platform::outside::output_file::write_private;

use super::{MAX_DEVICES, check_device_name};

/// The extension of the file with the tag of the process.
pub const TAG: &str = "tag";
/// The extension of the list of devices, if the process has several.
pub const DEVICES: &str = "devices";
/// The extension of the report of faults, for all devices.
pub const FAULTS: &str = "faults";
/// The extension of the capture of a device.
pub const PACKETS: &str = "pcapng";
/// The extension of the list of queue pairs of a device.
pub const QUEUE_PAIRS: &str = "qps";
/// The extension of the order of the calls and arrivals of a process.
pub const ORDER: &str = "order";
/// The extension of the file with the exit code, in the form of shells, of a program that `pumice` has
/// started and waited for.
pub const EXIT: &str = "exit";

/// Returns the file that a device writes to, where one is named for all devices of a process: for the first
/// device that one, for the others one beside it with their name in it.
pub fn process_file(pattern: &Path, index: usize, name: &str) -> PathBuf {
    if index == 0 {
        return pattern.to_owned();
    }
    let mut own = pattern.file_stem().unwrap_or_default().to_owned();
    own.push(format!("-{name}"));
    if let Some(extension) = pattern.extension() {
        own.push(".");
        own.push(extension);
    }
    pattern.with_file_name(own)
}

/// Writes the identity of a process: its tag, and the names of its devices.
///
/// # Errors
/// The file that cannot be written, and why.
pub fn note(folder: &Path, process: u32, tag: &str, devices: &[&str]) -> Result<(), (PathBuf, io::Error)> {
    let file = |extension| folder.join(format!("{process}.{extension}"));
    let list = file(DEVICES);
    let listed = if devices.len() > 1 {
        write_private(&list, device_list(devices).as_bytes())
    } else {
        // An earlier process may have had the same number.
        match outside::files::remove(&list) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    };
    listed.map_err(|error| (list, error))?;
    // The exit code of an earlier process with the same number must not count for this one.
    let _ = outside::files::remove(file(EXIT));
    let noted = file(TAG);
    write_private(&noted, tag.as_bytes()).map_err(|error| (noted, error))
}

/// Writes how a process ended.
///
/// # Errors
/// The file that cannot be written, and why.
pub fn note_exit(folder: &Path, process: u32, exit_code: u8) -> Result<(), (PathBuf, io::Error)> {
    let file = folder.join(format!("{process}.{EXIT}"));
    write_private(&file, format!("{exit_code}\n").as_bytes()).map_err(|error| (file, error))
}

fn device_list(names: &[&str]) -> String {
    names.iter().enumerate().map(|(number, name)| format!("{number} {name}\n")).collect()
}

/// Returns the names of the devices in a list.
///
/// # Errors
/// The problem, as a sentence: the list is damaged.
pub fn devices_in(list: &str) -> Result<Vec<String>, String> {
    let mut names: Vec<String> = Vec::new();
    for (number, line) in list.lines().enumerate() {
        let wrong = |problem: String| format!("line {}: {problem}", number + 1);
        if number >= MAX_DEVICES {
            return Err(wrong(format!("a process has at most {MAX_DEVICES} devices")));
        }
        let (found, name) = line.split_once(' ').unwrap_or((line, ""));
        if found != number.to_string() {
            return Err(wrong(format!("the number of the device is {found:?}, and {number} is next")));
        }
        check_device_name(name).map_err(wrong)?;
        if names.iter().any(|other| other == name) {
            return Err(wrong(format!("two devices have the name {name}")));
        }
        names.push(name.to_owned());
    }
    match names.len() {
        0 | 1 => Err(format!("it lists {} devices, and only a process with several has a list", names.len())),
        _ => Ok(names),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_read_as_it_was_written() {
        let names: Vec<String> = (0..MAX_DEVICES).map(|number| format!("mlx5_{number}")).collect();
        for count in 2..=MAX_DEVICES {
            let some: Vec<&str> = names.iter().take(count).map(String::as_str).collect();
            assert_eq!(devices_in(&device_list(&some)).expect("our own"), some);
        }
    }

    #[test]
    fn a_damaged_list_is_refused_with_what_is_wrong() {
        let seventeen: String = (0..=MAX_DEVICES).map(|number| format!("{number} d{number}\n")).collect();
        for (list, sentence) in [
            ("", "it lists 0 devices"),
            ("0 a\n", "it lists 1 devices"),
            ("0 a\n7 b\n", "line 2: the number of the device is \"7\", and 1 is next"),
            ("0 a\n+1 b\n", "line 2: the number of the device is \"+1\""),
            ("0 a\n-1 b\n", "line 2: the number of the device is \"-1\""),
            ("0 a\n18446744073709551617 b\n", "line 2: the number of the device is"),
            ("1 a\n0 b\n", "line 1: the number of the device is \"1\", and 0 is next"),
            ("0 a\n\n", "line 2: the number of the device is \"\""),
            ("0\n1\n", "line 1: a device is named with"),
            ("0 a\n1 ../b\n", "line 2: a device is named with"),
            ("0 a\n1 a\n", "line 2: two devices have the name a"),
            (&seventeen, "line 17: a process has at most 16 devices"),
        ] {
            let said = devices_in(list).expect_err(list);
            assert!(said.starts_with(sentence), "{list:?}: {said}");
        }
    }

    #[test]
    fn files_of_other_devices_have_their_names() {
        let pattern = Path::new("/a/17.qps");
        assert_eq!(process_file(pattern, 0, "rail0"), pattern);
        assert_eq!(process_file(pattern, 3, "rail3"), Path::new("/a/17-rail3.qps"));
        assert_eq!(process_file(Path::new("x"), 1, "rail1"), Path::new("x-rail1"));
    }
}
