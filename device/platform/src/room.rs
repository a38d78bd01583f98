//! Allocation in advance, so that no later call fails for lack of memory.

use crate::error::ResourceError;

/// Returns an empty list with capacity for `count` entries. Unused entries cost addresses, but no memory.
///
/// # Errors
/// `NoMemory`: there is no memory for that many of `what`.
pub fn try_new_list<T>(count: usize, what: &'static str) -> Result<Vec<T>, ResourceError> {
    let mut list = Vec::new();
    make_room(&mut list, count, what)?;
    Ok(list)
}

/// Allocates memory for `count` entries of a list in total, so that the list does not grow before it exceeds
/// them.
///
/// # Errors
/// As for [`try_new_list`]; the list is then unchanged.
pub fn make_room<T>(list: &mut Vec<T>, count: usize, what: &'static str) -> Result<(), ResourceError> {
    list.try_reserve_exact(count.saturating_sub(list.len()))
        .map_err(|_| ResourceError::no_memory(format!("{count} {what}; ask for fewer")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_there_at_once_or_refused() {
        let mut list: Vec<u64> = try_new_list(1000, "numbers").unwrap();
        let begin = list.as_ptr();
        list.extend(0..1000);
        assert_eq!((list.as_ptr(), list.len()), (begin, 1000), "it has not moved");
        make_room(&mut list, 500, "numbers").unwrap();
        assert_eq!(list.as_ptr(), begin);
        let refused = make_room(&mut list, usize::MAX / 8, "numbers").unwrap_err();
        assert_eq!((refused.errno(), list.len()), (libc::ENOMEM, 1000));
        assert_eq!(refused.to_string(), format!("no room: {} numbers; ask for fewer", usize::MAX / 8));
        assert!(try_new_list::<u64>(usize::MAX, "numbers").is_err());
    }
}
