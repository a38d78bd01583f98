//! The calls of vendors' libraries (mlx5dv_*, efadv_*, mlx4dv_*, manadv_*): whose they are, and what to use
//! instead.

use pumice_calls::{Call, Family};
use pumice_device::profile::Vendor;

/// Why a vendor's call is refused; none: it is no vendor's. `is_of_vendor`: the device looks like that
/// vendor's.
pub(crate) fn sentence(call: Call, is_of_vendor: bool) -> Option<String> {
    let Family::Vendor(adapters) = call.row().family else { return None };
    let instead = call.row().instead;
    let reason = match is_of_vendor {
        true => format!("this device looks like {adapters}, and does not have this call"),
        false => format!("only {adapters} adapters have it, and this device is none"),
    };
    Some(format!("{call} is refused with EOPNOTSUPP: {reason}; {instead}"))
}

/// The vendor of a call.
pub(crate) fn vendor_of(call: Call) -> Option<Vendor> {
    match call.name().split_once("dv_")?.0.trim_start_matches('_') {
        "efa" => Some(Vendor::Amazon),
        "mlx5" => Some(Vendor::Mellanox),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_of_a_vendor_has_a_sentence_that_names_it_and_the_way_out() {
        for call in Call::ALL {
            let said = sentence(*call, false);
            assert_eq!(said.is_some(), sentence(*call, true).is_some(), "{call}");
            let is_vendors = matches!(call.row().family, Family::Vendor(_));
            assert_eq!(said.is_some(), is_vendors, "{call}");
            assert!(!is_vendors || !call.row().is_refused || !call.row().instead.is_empty(), "{call}");
            assert!(is_vendors || !call.row().is_question, "{call}");
            if let Some(said) = said {
                assert!(said.starts_with(call.name()) && said.contains("; "), "{said}");
            }
        }
    }

    #[test]
    fn queue_pairs_of_a_vendors_kind_are_told_of_rc_and_ud() {
        for (call, kind) in [
            (Call::mlx5dv_create_qp, "DC"),
            (Call::mlx4dv_create_qp, "DC"),
            (Call::efadv_create_driver_qp, "SRD"),
            (Call::efadv_create_qp_ex, "SRD"),
        ] {
            let said = sentence(call, false).unwrap();
            assert!(said.contains("RC or UD") && said.contains(kind), "{said}");
            assert!(!call.row().is_question);
        }
    }

    #[test]
    fn questions_are_answered_without_a_word() {
        for call in [
            Call::mlx5dv_open_device,
            Call::mlx5dv_query_device,
            Call::efadv_query_device,
            Call::mlx5dv_get_clock_info,
        ] {
            assert!(call.row().is_question, "{call}");
        }
        for call in [Call::mlx5dv_create_mkey, Call::mlx5dv_devx_obj_create, Call::efadv_create_cq] {
            assert!(!call.row().is_question, "{call}");
        }
    }
}
