//! What the tests of `pumice world` share.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Variables by which engines say which part of the seeds a machine has: those of the machine that runs the
/// tests are none of theirs.
const ENGINES: [&str; 10] = [
    "PUMICE_SHARD_INDEX",
    "PUMICE_SHARD_COUNT",
    "JOB_COMPLETION_INDEX",
    "SLURM_ARRAY_TASK_ID",
    "SLURM_ARRAY_TASK_MIN",
    "SLURM_ARRAY_TASK_MAX",
    "SLURM_ARRAY_TASK_STEP",
    "SLURM_ARRAY_TASK_COUNT",
    "CI_NODE_INDEX",
    "CI_NODE_TOTAL",
];

/// A folder of a test, which goes with it.
pub(crate) struct Scratch(pub(crate) PathBuf);

impl Scratch {
    pub(crate) fn new(name: &str) -> Scratch {
        let folder = std::env::temp_dir().join(format!("pumice-world-cli-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder can be made");
        Scratch(folder)
    }

    /// `pumice world` in this folder.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pumice"));
        command.arg("world").args(arguments).current_dir(&self.0).env("XDG_RUNTIME_DIR", &self.0);
        for name in ENGINES {
            command.env_remove(name);
        }
        command
    }

    pub(crate) fn world(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("the program can be run")
    }

    /// The text of a file in it.
    #[allow(dead_code, reason = "not all tests read files")]
    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.0.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// Compiles a program of this folder. `None`: this machine has no compiler, or not these headers.
    #[allow(dead_code, reason = "not all tests have programs of their own")]
    pub(crate) fn program(&self, name: &str, options: &[&str]) -> Option<String> {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/world").join(format!("{name}.c"));
        let program = format!("./{name}{}", options.concat().replace(['-', '='], "_"));
        let mut compiler = Command::new("cc");
        compiler.args(["-g", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread"]);
        compiler.arg("-o").arg(&program).arg(source).args(options);
        let compiled = compiler.current_dir(&self.0).output();
        let Ok(compiled) = compiled else {
            eprintln!("**** SKIPPED: there is no C compiler");
            return None;
        };
        assert!(compiled.status.success(), "{compiled:?}");
        Some(program)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
