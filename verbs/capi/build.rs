//! Generates the object's version nodes, one exported symbol per row of the table of calls (`pumice_calls`),
//! and the assertions of `src/abi/layout.tsv`.
//!
//! A symbol is a jump with a `.symver` to a Rust function of the same name, in any file of `src/`; a symbol
//! whose row is marked as refused jumps to a refusal. Rows and functions are compared: a row without its
//! function fails the build, and so does a function without its row.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

use pumice_calls::{Call, CallFacts, ErrorReturn};

/// Version nodes of the private ABI between libibverbs and its providers. The first is the default.
const PRIVATE_GENERATIONS: [&str; 8] = ["34", "22", "25", "33", "57", "59", "64", "65"];

/// Version of the symbols of 2006.
const FIRST_VERSION: &str = "IBVERBS_1.0";
/// Folders whose functions of C implement no calls: the system calls them, or this library itself.
const WITHOUT_CALLS: [&str; 10] =
    ["abi", "platform", "call_sites", "log", "mappings", "check", "waits", "gate", "entry", "objects"];

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR"));
    for watched in ["src", "build.rs"] {
        println!("cargo:rerun-if-changed={watched}");
    }
    let (mut defined, mut of_tables) = (BTreeMap::new(), BTreeMap::new());
    find_functions(&root.join("src"), "crate", &mut defined, &mut of_tables);
    let mut exports = Exports { defined, of_tables, nodes: Vec::new(), code: String::new(), count: 0 };
    for call in Call::ALL {
        exports.add_call(*call);
    }
    exports.look_for_functions_without_a_row();
    let script: String = exports.nodes.iter().map(|node| format!("{node} {{ }};\n")).collect();
    write(&out.join("versions.map"), &script);
    write(&out.join("exports.rs"), &exports.code);
    write(&out.join("layout.rs"), &layout_assertions(&read(&root.join("src/abi/layout.tsv"))));

    let script = out.join("versions.map");
    println!("cargo:rustc-cdylib-link-arg=-Wl,--version-script={}", script.display());
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libibverbs.so.1");
    // Programs keep pointers into the object, and its threads run until the device is closed.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    // The linker lld merges functions that have the same code: scripts of packages rely on that.
    println!("cargo:rerun-if-env-changed=PUMICE_ICF");
    let set = |name: &str, value: &str| env::var(name).is_ok_and(|is| is == value);
    if set("PROFILE", "release") && set("PUMICE_ICF", "all") {
        println!("cargo:rustc-cdylib-link-arg=-Wl,--icf=all");
    }
}

struct Exports {
    /// Path of each function that other files reach, by name.
    defined: BTreeMap<String, String>,
    /// Path of each function that its own file puts into a table, by name.
    of_tables: BTreeMap<String, String>,
    nodes: Vec<String>,
    code: String,
    count: u32,
}

impl Exports {
    /// Exports a call by its symbol, if it has one.
    fn add_call(&mut self, call: Call) {
        let row = call.row();
        let own = self.function_of(row).cloned();
        match (&own, row.is_refused) {
            (None, false) => panic!("{call} has no function: write it, or say in its row that it is refused"),
            (Some(path), true) => panic!("{path} serves {call}: its row says that it is refused"),
            _ => {}
        }
        if row.version.is_empty() {
            return;
        }
        let target = own.unwrap_or_else(|| self.add_refusal(call, ""));
        if row.version == CallFacts::PRIVATE {
            for (position, generation) in PRIVATE_GENERATIONS.iter().enumerate() {
                let at = if position == 0 { "@@" } else { "@" };
                self.add(row.symbol, &format!("{}_{generation}", CallFacts::PRIVATE), at, &target);
            }
        } else {
            self.add(row.symbol, row.version, "@@", &target);
        }
        if row.has_first_version {
            // Programs of today do not get this version, which has other structures than today's.
            let target = self.add_refusal(call, &format!("@{FIRST_VERSION}"));
            self.add(row.symbol, FIRST_VERSION, "@", &target);
        }
    }

    /// Returns the function that implements a call: it has the name of the symbol, or of the call without its
    /// prefix if programs reach it through a table.
    fn function_of(&self, row: &CallFacts) -> Option<&String> {
        let name = if row.version.is_empty() { row.short_name() } else { row.symbol };
        self.defined.get(name).or_else(|| self.of_tables.get(name).filter(|_| row.version.is_empty()))
    }

    fn look_for_functions_without_a_row(&self) {
        let rows: BTreeSet<&str> =
            Call::ALL.iter().map(|call| call.row()).flat_map(|row| [row.symbol, row.short_name()]).collect();
        if let Some((name, path)) = self.defined.iter().find(|(name, _)| !rows.contains(name.as_str())) {
            panic!("{path} has no row: write one for {name} in device/calls, or do not call it extern \"C\"");
        }
    }

    /// Returns a function that refuses and names the call; `version` follows its name.
    fn add_refusal(&mut self, call: Call, version: &str) -> String {
        let (refusal, returned) = match call.row().answer {
            ErrorReturn::Errno => ("int", "core::ffi::c_int"),
            ErrorReturn::MinusOne => ("minus", "core::ffi::c_int"),
            ErrorReturn::Negative => ("negative", "core::ffi::c_int"),
            ErrorReturn::Null => ("null", "*mut core::ffi::c_void"),
            ErrorReturn::Plain => ("plain", "usize"),
        };
        let function = format!("refuse_{call}{}", if version.is_empty() { "" } else { "_1_0" });
        writeln!(
            self.code,
            "extern \"C\" fn {function}() -> {returned} {{ \
             crate::entry::unsupported::{refusal}(pumice_calls::Call::{call}, \"{version}\") }}"
        )
        .expect("a string takes any text");
        function
    }

    fn add(&mut self, name: &str, node: &str, at: &str, target: &str) {
        if !self.nodes.iter().any(|known| known == node) {
            self.nodes.push(node.to_owned());
        }
        self.count += 1;
        let label = format!("__pumice_{}_{name}", self.count);
        // The jump's reach is enough for the whole object.
        let jump = match env::var("CARGO_CFG_TARGET_ARCH").as_deref() {
            Ok("x86_64") => "jmp",
            Ok("aarch64") => "b",
            Ok("riscv64") => "tail",
            other => panic!("libpumice.so exports by jumps, and has none for {other:?}: add it here"),
        };
        // The jump and its `.symver` must be in one object file, and the function may be in another one.
        writeln!(
            self.code,
            "core::arch::global_asm!(\
             \".pushsection .text.{label},\\\"ax\\\",@progbits\", \
             \".globl {label}\", \".type {label},@function\", \"{label}: {jump} {{f}}\", \
             \".size {label}, . - {label}\", \".symver {label}, {name}{at}{node}\", \
             \".popsection\", f = sym {target});"
        )
        .expect("a string takes any text");
    }
}

/// Collects functions `extern "C"` and `"C-unwind"`, unsafe ones too, at the beginning of a line, below a
/// file or folder of `src/`: those that are `pub(crate)`, and others.
fn find_functions(
    source: &Path,
    module: &str,
    found: &mut BTreeMap<String, String>,
    private: &mut BTreeMap<String, String>,
) {
    if source.is_dir() {
        for entry in fs::read_dir(source).expect("src/ can be listed").flatten() {
            let path = entry.path();
            let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
            let is_root = stem == "lib" || stem == "mod";
            let own = if is_root { module.to_owned() } else { format!("{module}::{stem}") };
            if module != "crate" || !WITHOUT_CALLS.contains(&stem.as_str()) {
                find_functions(&path, &own, found, private);
            }
        }
        return;
    }
    for line in read(source).lines() {
        let (map, rest) = match line.strip_prefix("pub(crate) ") {
            Some(rest) => (&mut *found, rest),
            None => (&mut *private, line),
        };
        let rest = rest.strip_prefix("unsafe ").unwrap_or(rest);
        let of_c = rest.strip_prefix("extern \"C\" fn ");
        let Some(rest) = of_c.or_else(|| rest.strip_prefix("extern \"C-unwind\" fn ")) else { continue };
        let name = rest.split(['(', '<']).next().unwrap_or_default().trim();
        map.insert(name.to_owned(), format!("{module}::{name}"));
    }
}

/// Converts `struct field offset size` to constant assertions; `<size>` is the whole structure. Two more
/// columns are the offset and the size on aarch64.
fn layout_assertions(table: &str) -> String {
    let is_aarch64 = env::var("CARGO_CFG_TARGET_ARCH").is_ok_and(|arch| arch == "aarch64");
    let mut code = String::from("const _: () = {\n");
    for line in table.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        let words: Vec<&str> = line.split('\t').collect();
        let (kind, field, offset, size) = match words[..] {
            [kind, field, _, _, offset, size] if is_aarch64 => (kind, field, offset, size),
            [kind, field, offset, size, ..] => (kind, field, offset, size),
            _ => panic!("layout.tsv: \"{line}\""),
        };
        let claim = if field == "<size>" {
            format!("assert!(size_of::<{kind}>() == {size}, \"size of {kind}\");")
        } else {
            format!(
                "assert!(std::mem::offset_of!({kind}, {field}) == {offset}, \"{kind}.{field} offset\"); \
                 assert!(size_of_field(|of: &{kind}| &raw const of.{field}) == {size}, \"{kind}.{field} \
                 size\");"
            )
        };
        writeln!(code, "{claim}").expect("a string takes any text");
    }
    code + "};\n"
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn write(path: &Path, text: &str) {
    fs::write(path, text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}
