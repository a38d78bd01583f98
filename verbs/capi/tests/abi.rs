//! The structures and symbols of the object against the system's own headers and their users.

mod kit;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::process::Command;

use pumice_calls::{Call, CallFacts};

const LAYOUT: &str = include_str!("../src/abi/layout.tsv");

/// Fields that headers before rdma-core 65 may lack.
const NEWER: [&str; 8] = [
    "free_buf",
    "alloc_buf",
    "dm_export_dmabuf_fd",
    "reg_mr_ex",
    "dealloc_dmah",
    "alloc_dmah",
    "wr_flush",
    "active_speed_ex",
];
/// Fields of structures of vendors that those headers may lack.
const NEWER_OF_VENDORS: [(&str, &str); 13] = [
    ("efadv_qp_init_attr", "flags"),
    ("efadv_qp_init_attr", "wr_flags"),
    ("efadv_device_attr", "inline_buf_size_ex"),
    ("efadv_cq", "wc_is_unsolicited"),
    ("mlx5dv_context", "num_lag_ports"),
    ("mlx5dv_context", "sig_caps"),
    ("mlx5dv_context", "dci_streams_caps"),
    ("mlx5dv_context", "max_wr_memcpy_length"),
    ("mlx5dv_qp_ex", "wr_raw_wqe"),
    ("mlx5dv_qp_ex", "wr_memcpy"),
    ("mlx5dv_context", "max_dc_rd_atom"),
    ("mlx5dv_context", "max_dc_init_rd_atom"),
    ("mlx5dv_context", "ooo_recv_wrs_caps"),
];
/// Structures that headers before rdma-core 66 may lack.
const NEW: [&str; 17] = [
    "ibv_comp_cntr",
    "ibv_comp_cntr_caps",
    "ibv_comp_cntr_init_attr",
    "ibv_qp_attach_comp_cntr_attr",
    "ibv_mr_init_attr",
    "ibv_dmah",
    "ibv_dmah_init_attr",
    "efadv_mr_attr",
    "efadv_sq_depth_attr",
    "efadv_rq_depth_attr",
    "efadv_qp",
    "mlx5dv_sig_block_domain",
    "mlx5dv_sig_t10dif",
    "mlx5dv_sig_crc",
    "mlx5dv_sig_block_attr",
    "mlx5dv_mkey_err",
    "mlx5dv_sig_caps",
];
/// Structures that those fields make longer, or of which the library has the beginning alone.
const GROWN: [&str; 8] = [
    "verbs_context",
    "ibv_qp_ex",
    "ibv_port_attr",
    "efadv_cq",
    "efadv_qp_init_attr",
    "efadv_cq_init_attr",
    "mlx5dv_context",
    "mlx5dv_qp_ex",
];

#[test]
fn structures_are_those_of_the_system_headers() {
    let rows: Vec<(&str, &str, u32, u32)> = LAYOUT
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| {
            let words: Vec<&str> = line.split('\t').collect();
            let (kind, field, offset, size) = match words[..] {
                [kind, field, _, _, offset, size] if cfg!(target_arch = "aarch64") => {
                    (kind, field, offset, size)
                }
                [kind, field, offset, size, ..] => (kind, field, offset, size),
                _ => panic!("{line}"),
            };
            (kind, field.trim_start_matches("r#"), offset.parse().unwrap(), size.parse().unwrap())
        })
        .collect();
    let context = rows.iter().find(|row| row.0 == "verbs_context" && row.1 == "context").unwrap().2;
    let headers = [
        "stddef.h",
        "infiniband/ib.h",
        "infiniband/efadv.h",
        "infiniband/mlx5dv.h",
        "rdma/rdma_cma.h",
        "pumice/mrc_ctl.h",
    ];
    let mut source: String = headers.map(|header| format!("#include <{header}>\n")).concat();
    for (kind, field, offset, size) in rows {
        if NEWER_OF_VENDORS.contains(&(kind, field)) {
            continue;
        }
        if NEW.contains(&kind) || NEWER.contains(&field) || (field == "<size>" && GROWN.contains(&kind)) {
            continue;
        }
        let keyword = if kind == "ibv_gid" { "union" } else { "struct" };
        let name = format!("{keyword} {kind}");
        if field == "<size>" {
            writeln!(source, "_Static_assert(sizeof({name}) == {size}, \"{kind}\");").unwrap();
            continue;
        }
        writeln!(source, "_Static_assert(sizeof((({name} *)0)->{field}) == {size}, \"{kind}.{field}\");")
            .unwrap();
        if kind == "verbs_context" {
            // It grows at its front.
            writeln!(
                source,
                "_Static_assert(offsetof({name}, context) - offsetof({name}, {field}) == {}, \"{field}\");",
                context - offset
            )
        } else {
            writeln!(source, "_Static_assert(offsetof({name}, {field}) == {offset}, \"{kind}.{field}\");")
        }
        .unwrap();
    }
    let include = concat!("-I", env!("CARGO_MANIFEST_DIR"), "/include");
    let folder = kit::scratch("layout");
    let file = folder.join("layout.c");
    fs::write(&file, source).unwrap();
    kit::build(Command::new("cc").args(["-std=gnu11", "-fsyntax-only", include]).arg(&file));
}

/// Every `name@NODE` that the object defines, and whether the node is the default one.
fn exported() -> BTreeMap<(String, String), bool> {
    let output = Command::new("nm")
        .args(["-D", "--defined-only", "--with-symbol-versions"])
        .arg(kit::object())
        .output()
        .expect("nm runs");
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| {
            let symbol = line.split_whitespace().last()?;
            let default = symbol.contains("@@");
            let (name, node) = symbol.split_once('@')?;
            Some(((name.to_owned(), node.trim_start_matches('@').to_owned()), default))
        })
        .collect()
}

/// `ibv_NAME` and `rdma_NAME` in the list of verbs are calls. Names with a star stand for several.
#[test]
fn the_list_of_verbs_names_calls() {
    let text = include_str!("../SUPPORT.md");
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    for code in text.split('`').skip(1).step_by(2) {
        let name = code.trim_end_matches("()");
        let has_start = ["ibv_", "rdma_"].iter().any(|start| name.starts_with(start));
        // That one is a structure.
        let is_call = has_start && name.chars().all(is_of_name) && name != "ibv_qp_init_attr";
        assert!(!is_call || Call::of(name).is_some(), "SUPPORT.md: there is no call {name}");
    }
}

#[test]
fn every_symbol_of_the_table_is_exported_with_its_version() {
    if !kit::exists("nm") {
        return kit::skip("no nm: apt-get install binutils");
    }
    let exported = exported();
    let mut missing = Vec::new();
    for row in Call::ALL.iter().map(|call| call.row()).filter(|row| !row.version.is_empty()) {
        let node = if row.version == CallFacts::PRIVATE { "IBVERBS_PRIVATE_34" } else { row.version };
        // Programs that are linked today get the newest version of a name.
        let first = row.has_first_version.then_some(("IBVERBS_1.0", false));
        for (node, is_default) in [(node, true)].into_iter().chain(first) {
            if exported.get(&(row.symbol.to_owned(), node.to_owned())) != Some(&is_default) {
                missing.push(format!("{}@@{node}", row.symbol));
            }
        }
    }
    assert!(missing.is_empty(), "{missing:?}");
    assert!(exported.len() > 900, "{}", exported.len());
}
