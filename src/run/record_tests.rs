use super::*;

/// A temporary folder; dropping the value removes it.
struct RecordFolder(PathBuf);

impl RecordFolder {
    fn new(name: &str) -> RecordFolder {
        let folder = std::env::temp_dir().join(format!("pumice-record-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("the folder of temporary files is writable");
        RecordFolder(folder)
    }

    fn write(&self, name: &str, contents: impl AsRef<[u8]>) {
        fs::write(self.0.join(name), contents).expect("a folder of ours");
    }

    fn file(&self, name: &str) -> Option<PathBuf> {
        Some(self.0.join(name))
    }

    /// Returns the only process of the record.
    fn only(&self) -> RecordedProcess {
        let mut all = read(&self.0).expect("a record");
        assert_eq!(all.len(), 1);
        all.remove(0)
    }

    /// Returns the error with which the record or its report cannot be read.
    fn refusal(&self) -> String {
        let report = |all: Vec<RecordedProcess>| {
            all.iter().map(RecordedProcess::report).collect::<Result<Vec<_>, _>>()
        };
        read(&self.0).and_then(report).expect_err("it is damaged")
    }
}

impl Drop for RecordFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const LOST: &str = "{\"rule\":\"r\",\"tag\":\"t\",\"service\":\"rc\",\"lost\":true}\n";

/// Returns the record of a process with two devices.
fn of_two(name: &str) -> RecordFolder {
    let folder = RecordFolder::new(name);
    note(&folder.0, &identity(&["rail0", "rail1"]), 17).expect("a folder of ours");
    for file in ["17.pcapng", "17-rail1.pcapng", "17-rail1.qps"] {
        folder.write(file, "made 0 40\n");
    }
    folder
}

fn identity(devices: &[&str]) -> ProcessIdentity {
    let devices = devices.iter().map(|name| (*name).to_owned()).collect();
    ProcessIdentity { tag: "t".to_owned(), devices }
}

#[test]
fn a_process_with_one_device_is_read_as_it_always_was() {
    let folder = RecordFolder::new("one");
    for (file, text) in [("9.tag", "t"), ("9.faults", LOST), ("9.pcapng", ""), ("9.qps", "made 0 40\n")] {
        folder.write(file, text);
    }
    let process = folder.only();
    assert_eq!((process.tag.as_str(), process.devices.len()), ("t", 1));
    let device = &process.devices[0];
    assert_eq!((&device.name, &device.packets), (&None, &folder.file("9.pcapng")));
    assert_eq!(device.queue_pairs(), Ok("made 0 40\n".to_owned()));
    assert_eq!(process.report(), Ok(vec![LOST.trim_end().to_owned()]));
    let names = |names: &[&str]| identity(names).devices;
    assert!(process.had(&names(&["pumice0"])) && !process.had(&names(&["pumice0", "pumice1"])));
}

#[test]
fn each_device_has_the_files_with_its_name() {
    let folder = of_two("two");
    let process = folder.only();
    let found: Vec<_> = process.devices.iter().map(|one| (one.name.as_deref(), &one.packets)).collect();
    let files = [folder.file("17.pcapng"), folder.file("17-rail1.pcapng")];
    assert_eq!(found, [(Some("rail0"), &files[0]), (Some("rail1"), &files[1])]);
    let queue_pairs: Vec<_> = process.devices.iter().map(RecordedDevice::queue_pairs).collect();
    assert_eq!(queue_pairs, [Ok(String::new()), Ok("made 0 40\n".to_owned())]);
    let names = |names: &[&str]| identity(names).devices;
    assert!(process.had(&names(&["rail1", "rail0"])));
    assert!(!process.had(&names(&["rail0"])) && !process.had(&names(&["rail0", "rail2"])));
    // Another process gets the same id, and has one device.
    note(&folder.0, &identity(&["rail0"]), 17).expect("a folder of ours");
    assert!(!folder.0.join("17.devices").exists());
}

#[test]
fn lines_of_devices_that_were_not_there_are_refused() {
    let folder = of_two("lines");
    let of = |device: &str| LOST.replace("\"tag\"", &format!("\"device\":{device},\"tag\""));
    let begin = "{\"process\":\"t\",\"seed\":1,\"rules\":[\"r\"]}\n";
    let call = "{\"rule\":\"r\",\"tag\":\"t\",\"call\":\"ibv_get_device_list\",\"nth\":1}\n";
    folder.write("17.faults", [begin, call, &of("\"rail0\""), &of("\"rail1\"")].concat());
    assert_eq!(folder.only().report().map(|lines| lines.len()), Ok(4));
    let known = of("\"rail1\"");
    for (line, problem) in [
        (of("\"rail2\""), "line 2: the process had no device \"rail2\""),
        (of("1"), "line 2: it names no device, and the process had several"),
        (LOST.to_owned(), "line 2: it names no device, and the process had several"),
    ] {
        folder.write("17.faults", [&known, &line].map(String::as_str).concat());
        let refusal_text = folder.refusal();
        assert!(
            refusal_text.contains(problem) && refusal_text.ends_with("record the run again"),
            "{refusal_text}"
        );
    }
    // Without the list there is one device, and lines name no device.
    folder.write("17.faults", known);
    for file in ["17.devices", "17-rail1.pcapng", "17-rail1.qps"] {
        fs::remove_file(folder.0.join(file)).expect("a file of ours");
    }
    assert!(folder.refusal().contains("line 1: the process had no device \"rail1\""));
}

#[test]
fn files_of_devices_that_were_not_there_are_refused() {
    let folder = of_two("files");
    // The last line is lost.
    folder.write("17.devices", "0 rail0\n1 rail2\n");
    let refusal_text = folder.refusal();
    assert!(
        refusal_text.contains("17-rail1.pcapng: it is of a device that the process did not have"),
        "{refusal_text}"
    );
    fs::remove_file(folder.0.join("17.devices")).expect("a file of ours");
    assert!(folder.refusal().contains("of a device that the process did not have"));
    // Process 170 is another one than 17.
    let folder = of_two("others");
    folder.write("170.tag", "u");
    folder.write("170.qps", "");
    assert_eq!(read(&folder.0).expect("a record").len(), 2);
}

#[test]
fn what_is_no_file_or_too_long_is_refused() {
    let folder = of_two("kinds");
    let list = folder.0.join("17.devices");
    for damage in [vec![b'0'; 1 << 13], vec![0xff; 8], Vec::new(), b"0 rail0\n17 rail1\n".to_vec()] {
        fs::write(&list, &damage).expect("a folder of ours");
        let refusal_text = folder.refusal();
        assert!(refusal_text.contains("17.devices"), "{refusal_text}");
    }
    fs::remove_file(&list).expect("a file of ours");
    // No process writes to the pipe.
    let made = std::process::Command::new("mkfifo").arg(&list).status().expect("mkfifo runs");
    assert!(made.success() && folder.refusal().contains("17.devices cannot be read: it is no file"));
}

#[test]
fn no_damage_to_a_file_makes_it_panic() {
    let folder = of_two("damage");
    folder.write("17.faults", LOST.replace("\"tag\"", "\"device\":\"rail1\",\"tag\""));
    for name in ["17.devices", "17.tag", "17.faults", "17-rail1.qps"] {
        let original = fs::read(folder.0.join(name)).expect("a file of ours");
        for index in 0..original.len() {
            for flip in [0x01, 0x10, 0x80, 0xff] {
                let mut damaged = original.clone();
                damaged[index] ^= flip;
                folder.write(name, &damaged);
                let Ok(all) = read(&folder.0) else { continue };
                for process in all {
                    let _ = process.report();
                    process.devices.iter().for_each(|device| drop(device.queue_pairs()));
                }
            }
        }
        folder.write(name, original);
    }
    assert!(folder.only().report().is_ok());
}
