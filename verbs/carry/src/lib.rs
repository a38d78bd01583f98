//! Puts shared objects that Cargo has built as dependencies into a program.
//!
//! Cargo builds a dependency of the types `cdylib` and `rlib` as both before it compiles a program, but hands
//! the program the `rlib` only (artifact dependencies, which would hand it the object, are not stable). The
//! object is beside the `rlib` under the same name, so its path follows from rustc's own arguments.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use proc_macro::TokenStream;

/// Expands `carried!("NAME")` to an `Option<(u64, &'static [u8])>`, a digest and the bytes of the object of
/// the dependency NAME. `None` where Cargo did not build one, as in `cargo check`.
#[proc_macro]
pub fn carried(input: TokenStream) -> TokenStream {
    let name = input.to_string();
    let object = object(name.trim_matches('"'), std::env::args_os());
    let found = object.filter(|object| object.is_file()).and_then(|object| {
        let digest = digest(&std::fs::read(&object).ok()?);
        let path = object.to_str()?;
        Some(format!("::core::option::Option::Some(({digest}, ::core::include_bytes!({path:?}).as_slice()))"))
    });
    let code = found.unwrap_or_else(|| "::core::option::Option::<(u64, &'static [u8])>::None".to_owned());
    code.parse().unwrap_or_default()
}

/// Computes an FNV-1a digest, which distinguishes builds, and is no protection against a user who wants two
/// with the same digest.
fn digest(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Returns the path that the object of a dependency would have, by the arguments of rustc:
/// `--extern NAME=FOLDER/libNAME.rlib`.
fn object(name: &str, arguments: impl Iterator<Item = OsString>) -> Option<PathBuf> {
    arguments.filter_map(|argument| argument.into_string().ok()).find_map(|argument| {
        let argument = argument.strip_prefix("--extern=").unwrap_or(&argument);
        let (key, path) = argument.split_once('=')?;
        // Options may stand in front of the name: "noprelude:pumice".
        let key = key.rsplit(':').next().unwrap_or(key);
        let path = Path::new(path);
        (key == name && path.extension().is_some_and(|end| end == "rlib")).then(|| path.with_extension("so"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(name: &str, arguments: &[&str]) -> Option<PathBuf> {
        object(name, arguments.iter().map(OsString::from))
    }

    #[test]
    fn the_object_is_beside_the_library_under_its_name() {
        let arguments =
            ["--extern", "clap=/t/deps/libclap-1.rlib", "--extern", "pumice=/t/deps/libpumice.rlib"];
        assert_eq!(found("pumice", &arguments), Some(PathBuf::from("/t/deps/libpumice.so")));
        let hashed = ["--extern=noprelude:pumice=/t/deps/libpumice-0123abcd.rlib"];
        assert_eq!(found("pumice", &hashed), Some(PathBuf::from("/t/deps/libpumice-0123abcd.so")));
        assert_eq!(found("pumice_sysfs", &arguments), None);
    }

    #[test]
    fn digests_are_those_of_fnv_1a() {
        assert_eq!(digest(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(digest(b"foobar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn what_is_only_checked_has_no_object() {
        assert_eq!(found("pumice", &["--extern", "pumice=/t/deps/libpumice.rmeta"]), None);
        assert_eq!(found("pumice", &["-L", "dependency=/t/deps", "pumice"]), None);
    }
}
