//! The calls that a fault plan can make fail, and their errnos.

use crate::errnos::Errnos;
use crate::table::Call;

/// A call that can fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallInfo {
    /// Name of the call.
    pub name: &'static str,
    /// Name of its manual page in section 3; empty if rdma-core 44 has none.
    pub page: &'static str,
    /// Errnos with which it can fail.
    pub errnos: Errnos,
}

impl CallInfo {
    /// Returns the call of this name.
    pub fn of(name: &str) -> Option<&'static CallInfo> {
        let position = CALLS.binary_search_by(|info| info.name.cmp(name)).ok()?;
        CALLS.get(position)
    }

    /// Returns the errnos with which it can fail; the first is the default.
    pub const fn errnos(&self) -> &'static [i32] {
        self.errnos.all()
    }

    /// Returns the [`Call`] of this name.
    pub fn call(&self) -> Option<Call> {
        Call::of(self.name)
    }
}

const COUNT: usize = {
    let (mut count, mut index) = (0, 0);
    while index < Call::COUNT {
        if Call::nth(index).errnos().is_some() {
            count += 1;
        }
        index += 1;
    }
    count
};

const LIST: [CallInfo; COUNT] = {
    let mut list = [CallInfo { name: "", page: "", errnos: Errnos::Usual(&[]) }; COUNT];
    let (mut count, mut index) = (0, 0);
    while index < Call::COUNT {
        let row = Call::nth(index).row();
        if let Some(errnos) = row.errnos {
            list[count] = CallInfo { name: row.name, page: row.page, errnos };
            count += 1;
        }
        index += 1;
    }
    list
};

/// All calls that can fail, by name.
pub const CALLS: &[CallInfo] = &LIST;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_sorted_and_each_call_fails_with_something() {
        assert!(CALLS.is_sorted_by(|one, next| one.name < next.name));
        for info in CALLS {
            assert_eq!(CallInfo::of(info.name), Some(info));
            assert!(!info.errnos().is_empty());
        }
        assert_eq!(CallInfo::of("ibv_wc_status_str"), None);
        assert_eq!(
            CallInfo::of("ibv_close_xrc_domain").and_then(CallInfo::call),
            Some(Call::ibv_close_xrc_domain)
        );
    }
}
