//! DMA handles (`ibv_alloc_dmah`). Their parameters are checked as by Linux and the provider that has them,
//! and have no effect: the processor that copies this device's bytes manages its own caches.

use std::ffi::c_int;

use pumice_calls::Call;
use pumice_device::outside::processors::may_run_on;

use crate::abi::{ibv_context, ibv_dmah, ibv_dmah_init_attr};
use crate::entry::arguments::In;
use crate::entry::handles::{hand_out, live, take_back};
use crate::entry::outcome::{pointer_about, status_of};
use crate::gate::CallSubject;
use crate::log::refusal::check_mask;
use crate::objects::context::Context;
use crate::objects::dma_handle::Dmah;
use crate::platform::errno::{Errno, INVALID, NOT_SUPPORTED};

/// Bits of `IBV_DMAH_INIT_ATTR_MASK_*`.
const MASK_CPU_ID: u32 = 1;
const MASK_PH: u32 = 1 << 1;
const MASK_TPH_MEM_TYPE: u32 = 1 << 2;
const MASK_KNOWN: u32 = MASK_CPU_ID | MASK_PH | MASK_TPH_MEM_TYPE;
/// The two members of a steering tag.
const MASK_STEERING: u32 = MASK_CPU_ID | MASK_TPH_MEM_TYPE;

/// Largest processing hint: PCIe has two bits for it.
const LARGEST_HINT: u8 = 3;
/// The value `IBV_TPH_MEM_TYPE_PM`, behind `IBV_TPH_MEM_TYPE_VM`.
const LARGEST_MEMORY_TYPE: u8 = 1;

/// # Errors
/// Fails with EINVAL for no hint, one of more than two bits, or half of a steering tag; with EOPNOTSUPP for
/// an unknown type of memory; with EPERM for a processor that this thread may not run on.
fn check(attributes: &ibv_dmah_init_attr) -> Result<(), Errno> {
    let ibv_dmah_init_attr { comp_mask, cpu_id, ph, tph_mem_type } = *attributes;
    check_mask(Call::ibv_alloc_dmah, comp_mask, MASK_KNOWN)?;
    let refused = |errno: Errno, why: String| errno.because(|| format!("ibv_alloc_dmah refused: {why}"));
    if comp_mask & MASK_PH == 0 {
        return Err(refused(INVALID, "a processing hint (ph) must be given".to_owned()));
    }
    if ph > LARGEST_HINT {
        return Err(refused(INVALID, format!("the processing hint {ph} is more than {LARGEST_HINT}")));
    }
    match comp_mask & MASK_STEERING {
        0 => return Ok(()),
        MASK_STEERING => {}
        _ => return Err(refused(INVALID, "give cpu_id and tph_mem_type together".to_owned())),
    }
    if tph_mem_type > LARGEST_MEMORY_TYPE {
        return Err(refused(NOT_SUPPORTED, format!("there is no type of memory {tph_mem_type}")));
    }
    if !may_run_on(cpu_id) {
        return Err(refused(Errno(libc::EPERM), format!("this thread may not run on processor {cpu_id}")));
    }
    Ok(())
}

pub(crate) extern "C" fn ibv_alloc_dmah(
    context: *mut ibv_context,
    attributes: In<'_, ibv_dmah_init_attr>,
) -> *mut ibv_dmah {
    pointer_about(Call::ibv_alloc_dmah, CallSubject::on(context), || {
        Context::of(context)?;
        check(attributes.get()?)?;
        Ok(hand_out(Dmah::new(context)))
    })
}

pub(crate) extern "C" fn ibv_dealloc_dmah(dmah: *mut ibv_dmah) -> c_int {
    status_of(Call::ibv_dealloc_dmah, CallSubject::of(dmah), || {
        live::<Dmah>(dmah)?.check_unused()?;
        take_back::<Dmah>(dmah);
        Ok(())
    })
}
