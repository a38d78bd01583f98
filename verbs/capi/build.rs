//! Makes the object's version nodes, one exported symbol per line of `symbols/*.txt`, and the
//! assertions of `src/ground/abi/layout.tsv`.
//!
//! A symbol is a jump with a `.symver` to a Rust function of the same name, wherever in `src/` that
//! is defined; a symbol without a function jumps to the refusal that its line names.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

/// Lists of symbols: `name node refusal`.
const LISTS: [&str; 7] = ["ibverbs", "ibverbs_private", "rdmacm", "mlx5", "efa", "mlx4", "mana"];
/// Symbols of a first version that programs of today do not get: other structures than today's go with them,
/// so all are refused, although a function may serve the same name today.
const FIRST_VERSIONS: &str = "ibverbs_1_0";
/// Generations of the private ABI between libibverbs and its providers. The first is the default.
const PRIVATE_GENERATIONS: [&str; 8] = ["34", "22", "25", "33", "57", "59", "64", "65"];

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR"));
    for watched in ["src", "symbols", "build.rs"] {
        println!("cargo:rerun-if-changed={watched}");
    }
    let mut defined = BTreeMap::new();
    find_functions(&root.join("src"), "crate", &mut defined);
    let mut exports = Exports { defined, nodes: Vec::new(), code: String::new(), count: 0 };
    for list in LISTS.into_iter().chain([FIRST_VERSIONS]) {
        for line in read(&root.join(format!("symbols/{list}.txt"))).lines() {
            let mut words = line.split_whitespace();
            let (Some(name), Some(node), Some(refusal)) = (words.next(), words.next(), words.next()) else {
                panic!("symbols/{list}.txt: \"{line}\" is not \"name node refusal\"");
            };
            if list == FIRST_VERSIONS {
                exports.add_first_version(name, node, refusal);
            } else {
                exports.add_line(name, node, refusal);
            }
        }
    }
    let script: String = exports.nodes.iter().map(|node| format!("{node} {{ }};\n")).collect();
    write(&out.join("versions.map"), &script);
    write(&out.join("exports.rs"), &exports.code);
    write(&out.join("layout.rs"), &layout_assertions(&read(&root.join("src/ground/abi/layout.tsv"))));

    let script = out.join("versions.map");
    println!("cargo:rustc-cdylib-link-arg=-Wl,--version-script={}", script.display());
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libibverbs.so.1");
    // Programs keep pointers into the object, and its threads run until the device is closed.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}

struct Exports {
    /// Path of each function by name.
    defined: BTreeMap<String, String>,
    nodes: Vec<String>,
    code: String,
    count: u32,
}

impl Exports {
    fn add_line(&mut self, name: &str, node: &str, refusal: &str) {
        let target = match self.defined.get(name) {
            Some(path) => path.clone(),
            None => self.add_refusal(name, refusal),
        };
        if node != "IBVERBS_PRIVATE" {
            return self.add(name, node, "@@", &target);
        }
        for (position, generation) in PRIVATE_GENERATIONS.iter().enumerate() {
            let at = if position == 0 { "@@" } else { "@" };
            self.add(name, &format!("IBVERBS_PRIVATE_{generation}"), at, &target);
        }
    }

    fn add_first_version(&mut self, name: &str, node: &str, refusal: &str) {
        let call = format!("{name}@{node}");
        let target = self.add_refusal(&call, refusal);
        self.add(name, node, "@", &target);
    }

    /// A function that refuses and says which call it was.
    fn add_refusal(&mut self, name: &str, refusal: &str) -> String {
        let returned = match refusal {
            "int" | "minus" | "neg" => "core::ffi::c_int",
            "ptr" => "*mut core::ffi::c_void",
            "zero" => "usize",
            _ => panic!("{name}: there is no refusal \"{refusal}\""),
        };
        let identifier: String =
            name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
        let (function, call) = (format!("refuse_{identifier}"), name.trim_start_matches('_'));
        writeln!(
            self.code,
            "extern \"C\" fn {function}() -> {returned} {{ crate::ground::unserved::{refusal}(\"{call}\") }}"
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
        // Of a reach that is enough for the whole object.
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

/// Collects `pub(crate) extern "C" fn` and `"C-unwind"`, unsafe ones too, at the beginning of a line.
fn find_functions(folder: &Path, module: &str, found: &mut BTreeMap<String, String>) {
    for entry in fs::read_dir(folder).expect("src/ can be listed").flatten() {
        let path = entry.path();
        let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        if path.is_dir() {
            find_functions(&path, &format!("{module}::{stem}"), found);
            continue;
        }
        let own =
            if stem == "lib" || stem == "mod" { module.to_owned() } else { format!("{module}::{stem}") };
        for line in read(&path).lines() {
            let Some(rest) = line.strip_prefix("pub(crate) ") else { continue };
            let rest = rest.strip_prefix("unsafe ").unwrap_or(rest);
            let of_c = rest.strip_prefix("extern \"C\" fn ");
            let Some(rest) = of_c.or_else(|| rest.strip_prefix("extern \"C-unwind\" fn ")) else { continue };
            let name = rest.split(['(', '<']).next().unwrap_or_default().trim();
            found.insert(name.to_owned(), format!("{own}::{name}"));
        }
    }
}

/// `struct field offset size` to constant assertions; `<size>` is the whole structure. Two more columns are
/// the offset and the size on aarch64.
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
