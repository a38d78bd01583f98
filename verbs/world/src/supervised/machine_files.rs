//! The files of every world below /sys/devices/system: its processors and its memory, in the kernel's format.

use super::machine::{MEMORY, PROCESSORS, SYSTEM};

/// A file or, without a text, a folder; folders come before their contents.
pub(crate) struct SyntheticFile {
    pub(crate) path: String,
    pub(crate) text: Option<String>,
}

/// Returns all files and folders.
pub(crate) fn machine_files() -> Vec<SyntheticFile> {
    let mut files = Vec::new();
    let all = format!("0-{}", PROCESSORS - 1);
    let mask = format!("{:x}", (1_u32 << PROCESSORS) - 1);
    add_folder(&mut files, "cpu");
    for name in ["online", "possible", "present"] {
        add(&mut files, &format!("cpu/{name}"), &all);
    }
    add(&mut files, "cpu/offline", "");
    for processor in 0..PROCESSORS {
        let folder = format!("cpu/cpu{processor}");
        add_folder(&mut files, &folder);
        let folder = format!("{folder}/topology");
        add_folder(&mut files, &folder);
        let (number, own_mask) = (processor.to_string(), format!("{:x}", 1_u32 << processor));
        add(&mut files, &format!("{folder}/core_id"), &number);
        for name in ["physical_package_id", "die_id", "cluster_id"] {
            add(&mut files, &format!("{folder}/{name}"), "0");
        }
        for name in ["thread_siblings", "core_cpus"] {
            add(&mut files, &format!("{folder}/{name}"), &own_mask);
            add(&mut files, &format!("{folder}/{name}_list"), &number);
        }
        for name in ["core_siblings", "package_cpus", "die_cpus"] {
            add(&mut files, &format!("{folder}/{name}"), &mask);
            add(&mut files, &format!("{folder}/{name}_list"), &all);
        }
    }
    add_folder(&mut files, "node");
    for name in ["online", "possible", "has_cpu", "has_memory", "has_normal_memory"] {
        add(&mut files, &format!("node/{name}"), "0");
    }
    add_folder(&mut files, "node/node0");
    let (total, free) = (MEMORY / 1024, MEMORY / 2048);
    let memory = format!(
        "Node 0 MemTotal: {total:>14} kB\nNode 0 MemFree: {free:>15} kB\nNode 0 MemUsed: {free:>15} kB"
    );
    for (name, text) in [("cpumap", &*mask), ("cpulist", &*all), ("distance", "10"), ("meminfo", &*memory)] {
        add(&mut files, &format!("node/node0/{name}"), text);
    }
    files
}

fn add_folder(files: &mut Vec<SyntheticFile>, name: &str) {
    files.push(SyntheticFile { path: format!("{SYSTEM}/{name}"), text: None });
}

fn add(files: &mut Vec<SyntheticFile>, name: &str, line: &str) {
    files.push(SyntheticFile { path: format!("{SYSTEM}/{name}"), text: Some(format!("{line}\n")) });
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn folders_stand_before_what_is_in_them() {
        let mut folders = BTreeSet::from([SYSTEM.to_owned()]);
        for file in machine_files() {
            let (folder, _) = file.path.rsplit_once('/').unwrap();
            assert!(folders.contains(folder), "{}", file.path);
            if file.text.is_none() {
                folders.insert(file.path);
            }
        }
    }
}
