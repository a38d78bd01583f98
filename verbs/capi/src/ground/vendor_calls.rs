//! The calls of vendors' libraries (mlx5dv_*, efadv_*, mlx4dv_*, manadv_*): whose they are, and what to use
//! instead.

/// Prefixes of the calls, and the adapters that have them.
const VENDORS: [(&str, &str); 4] = [
    ("mlx5dv_", "mlx5 (ConnectX)"),
    ("mlx4dv_", "mlx4 (ConnectX-3)"),
    ("efadv_", "EFA"),
    ("manadv_", "MANA"),
];

/// What stands in the name of a call, and what serves instead of it; the first that fits.
const INSTEAD: [(&str, &str); 13] = [
    (
        "efadv_create_driver_qp",
        "use queue pairs of RC or UD instead of SRD (libfabric: FI_PROVIDER=verbs, or \"verbs;ofi_rxm\")",
    ),
    (
        "efadv_create_qp_ex",
        "use queue pairs of RC or UD instead of SRD (libfabric: FI_PROVIDER=verbs, or \"verbs;ofi_rxm\")",
    ),
    ("create_qp", "use ibv_create_qp_ex, and RC or UD instead of DC (UCX: UCX_TLS=rc_v,ud_v)"),
    ("create_cq", "use ibv_create_cq_ex"),
    ("create_wq", "use a queue pair with a shared receive queue"),
    ("mkey", "use ibv_reg_mr, and lists of elements"),
    ("reg_dmabuf_mr", "use ibv_reg_dmabuf_mr"),
    ("alloc_dm", "use ibv_alloc_dm"),
    ("_dm_", "use ibv_alloc_dm"),
    ("devx_", "use the calls of libibverbs (UCX: UCX_IB_MLX5_DEVX=n)"),
    ("_dr_", "no packet of Ethernet passes here that could be steered"),
    ("flow", "no packet of Ethernet passes here that could be steered"),
    ("", "use the calls of libibverbs, which every device has"),
];

/// Whether a call asks what a device is or has: libraries such as UCX and NCCL ask every device, and take the
/// other way after a no.
pub(crate) fn asks(call: &str) -> bool {
    const QUESTIONS: [&str; 5] = ["_query_", "_get_", "_is_supported", "dv_open_device", "_mkey_check"];
    is_of_vendor(call) && QUESTIONS.iter().any(|part| call.contains(part))
}

fn is_of_vendor(call: &str) -> bool {
    VENDORS.iter().any(|(prefix, _)| call.starts_with(prefix))
}

/// Why a vendor's call is refused; none: it is no vendor's.
pub(crate) fn sentence(call: &str) -> Option<String> {
    let (_, adapters) = VENDORS.iter().find(|(prefix, _)| call.starts_with(prefix))?;
    let (_, instead) = INSTEAD.iter().find(|(part, _)| call.contains(part))?;
    Some(format!(
        "{call} is refused with EOPNOTSUPP: only {adapters} adapters have it, and this device is none; \
         {instead}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The calls in a list of symbols, as refusals name them.
    fn calls(list: &str) -> Vec<String> {
        let path = format!("{}/symbols/{list}.txt", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(path).unwrap();
        let names = text.lines().filter_map(|line| line.split_whitespace().next());
        names.map(|name| name.trim_start_matches('_').to_owned()).collect()
    }

    #[test]
    fn every_call_of_a_vendor_has_a_sentence_that_names_it_and_the_way_out() {
        for list in ["mlx5", "mlx4", "efa", "mana"] {
            for call in calls(list) {
                let said = sentence(&call).unwrap_or_else(|| panic!("{call} has no sentence"));
                assert!(said.starts_with(&call) && said.contains("; "), "{said}");
            }
        }
        for call in calls("ibverbs").iter().chain(&calls("rdmacm")) {
            assert!(sentence(call).is_none() && !asks(call), "{call}");
        }
    }

    #[test]
    fn queue_pairs_of_a_vendors_kind_are_told_of_rc_and_ud() {
        for (call, kind) in [
            ("mlx5dv_create_qp", "DC"),
            ("mlx4dv_create_qp", "DC"),
            ("efadv_create_driver_qp", "SRD"),
            ("efadv_create_qp_ex", "SRD"),
        ] {
            let said = sentence(call).unwrap();
            assert!(said.contains("RC or UD") && said.contains(kind) && !asks(call), "{said}");
        }
    }

    #[test]
    fn questions_are_answered_without_a_word() {
        for call in
            ["mlx5dv_open_device", "mlx5dv_query_device", "efadv_query_device", "mlx5dv_get_clock_info"]
        {
            assert!(asks(call), "{call}");
        }
        for call in ["mlx5dv_create_mkey", "mlx5dv_devx_obj_create", "efadv_create_cq", "ibv_query_device"] {
            assert!(!asks(call), "{call}");
        }
    }
}
