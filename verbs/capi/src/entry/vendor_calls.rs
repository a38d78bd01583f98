//! The calls of vendors' libraries (mlx5dv_*, efadv_*, mlx4dv_*, manadv_*): their vendors, and what to use
//! instead.

use pumice_calls::{Call, CallFamily};
use pumice_device::profile::Vendor;

/// Returns the reason why a vendor's call is refused; `None` if it is no vendor's call. `is_of_vendor` is
/// true if the device looks like that vendor's.
pub(crate) fn sentence(call: Call, is_of_vendor: bool) -> Option<String> {
    let CallFamily::Vendor(adapters) = call.row().family else { return None };
    let replacement = call.row().replacement;
    let reason = match is_of_vendor {
        true => format!("this device looks like {adapters}, and does not have this call"),
        false => format!("only {adapters} adapters have it, and this device is none"),
    };
    Some(format!("{call} is refused with EOPNOTSUPP: {reason}; {replacement}"))
}

/// Returns the vendor of a call.
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
    fn every_vendor_call_has_a_sentence_that_names_it_and_a_remedy() {
        for call in Call::ALL {
            let text = sentence(*call, false);
            assert_eq!(text.is_some(), sentence(*call, true).is_some(), "{call}");
            let is_vendors = matches!(call.row().family, CallFamily::Vendor(_));
            assert_eq!(text.is_some(), is_vendors, "{call}");
            assert!(!is_vendors || !call.row().is_refused || !call.row().replacement.is_empty(), "{call}");
            assert!(is_vendors || !call.row().is_feature_probe, "{call}");
            if let Some(text) = text {
                assert!(text.starts_with(call.name()) && text.contains("; "), "{text}");
            }
        }
    }

    #[test]
    fn messages_about_vendor_queue_pairs_name_rc_and_ud() {
        for (call, kind) in [
            (Call::mlx5dv_create_qp, "DC"),
            (Call::mlx4dv_create_qp, "DC"),
            (Call::efadv_create_driver_qp, "SRD"),
            (Call::efadv_create_qp_ex, "SRD"),
        ] {
            let text = sentence(call, false).unwrap();
            assert!(text.contains("RC or UD") && text.contains(kind), "{text}");
            assert!(!call.row().is_feature_probe);
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
            assert!(call.row().is_feature_probe, "{call}");
        }
        for call in [Call::mlx5dv_create_mkey, Call::mlx5dv_devx_obj_create, Call::efadv_create_cq] {
            assert!(!call.row().is_feature_probe, "{call}");
        }
    }
}
