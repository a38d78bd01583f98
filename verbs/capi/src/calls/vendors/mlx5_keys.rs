//! mlx5's indirect memory keys: objects, and the requests that configure them.

use std::ffi::c_int;
use std::sync::Arc;

use pumice_calls::Call;
use pumice_device::memory::{IndirectKeyInit, SignaturePart};
use pumice_device::profile::Vendor;
use pumice_transport::types::{
    Access, BlockSignature, KeyConfiguration, KeyLayout, KeyPiece, KeySignature, SendFlags, SendOpcode,
    SignatureChange, SignedBlocks,
};

use super::super::queue_pair_ex::{add, set};
use super::imitates;
use crate::abi::{
    ibv_sge, mlx5dv_mkey, mlx5dv_mkey_conf_attr, mlx5dv_mkey_err, mlx5dv_mkey_init_attr,
    mlx5dv_mr_interleaved, mlx5dv_qp_ex, mlx5dv_sig_block_attr, mlx5dv_sig_block_domain, mlx5dv_sig_caps,
    mlx5dv_sig_crc, mlx5dv_sig_t10dif, operation,
};
use crate::entry::arguments::{Array, In, InOut, Out, Trusted};
use crate::entry::handles::{hand_out, live, take_back};
use crate::entry::{pointer_about, status_of, unsupported, value};
use crate::gate::CallSubject;
use crate::objects::command_file::OwnedObject;
use crate::objects::domains::Pd;
use crate::objects::mlx5::Mkey;
use crate::objects::queue_pair::{Mlx5Qp, Qp, SendSeries};
use crate::platform::{Errno, INVALID, NOT_SUPPORTED};

/// Flags of `MLX5DV_MKEY_INIT_ATTR_FLAGS_*`: indirect; its low byte may change; peers may invalidate it.
const FLAG_INDIRECT: u32 = 1;
const FLAG_UPDATE_TAG: u32 = 1 << 3;
const FLAG_REMOTE_INVALIDATE: u32 = 1 << 4;
/// Flag: the key may have signatures.
const FLAG_SIGNATURES: u32 = 1 << 1;
const FLAGS_SERVED: u32 = FLAG_INDIRECT | FLAG_SIGNATURES | FLAG_UPDATE_TAG | FLAG_REMOTE_INVALIDATE;
/// The flag `MLX5DV_MKEY_CONF_FLAG_RESET_SIG_ATTR`.
const CONF_RESET_SIGNATURE: u32 = 1;
/// Values of `MLX5DV_MKEY_*`: no error, and the parts of a field that can have one.
const NO_ERROR: u32 = 0;
const BAD_GUARD: u32 = 1;
const BAD_REF_TAG: u32 = 2;
const BAD_APP_TAG: u32 = 3;
/// Values of `MLX5DV_SIG_TYPE_*`.
const TYPE_T10_DIF: u32 = 0;
const TYPE_CRC: u32 = 1;
/// The flag `MLX5DV_SIG_BLOCK_ATTR_FLAG_COPY_MASK`.
const FLAG_COPY_MASK: u32 = 1;
/// Block lengths in bytes, by `MLX5DV_BLOCK_SIZE_*`.
const BLOCK_BYTES: [u32; 5] = [512, 520, 4048, 4096, 4160];
/// Capabilities of [`blocks_of`], with a bit for each number.
pub(super) const SIGNATURES: mlx5dv_sig_caps =
    mlx5dv_sig_caps { block_size: 0x1f, block_prot: 3, t10dif_bg: 3, crc_type: 7 };
/// Number of pieces that adapters store in one unit.
const PIECES_IN_A_UNIT: u16 = 4;
/// Number of setters after `wr_mr_list` and `wr_mr_interleaved`: the rights, and the layout.
const SETTERS_OF_REGION: u8 = 2;

/// Reports whether a device of this process may look like mlx5.
fn serves() -> bool {
    imitates(Vendor::Mellanox)
}

/// Logs the reason of a refusal, and returns the error.
fn invalid(what: &'static str) -> Errno {
    INVALID.because(|| format!("a request to configure an indirect memory key was refused: {what}"))
}

pub(crate) extern "C" fn mlx5dv_create_mkey(
    mkey_init_attr: InOut<'_, mlx5dv_mkey_init_attr>,
) -> *mut mlx5dv_mkey {
    let call = Call::mlx5dv_create_mkey;
    if !serves() {
        return unsupported::null(call, "").cast();
    }
    pointer_about(call, CallSubject::NOTHING, || {
        let attributes = mkey_init_attr.get()?;
        let domain = live::<Pd>(attributes.pd)?;
        let context = domain.context()?;
        if !context.is_of(Vendor::Mellanox) {
            return Err(NOT_SUPPORTED);
        }
        let flags = attributes.create_flags;
        if flags == 0 || flags & !FLAGS_SERVED != 0 {
            return Err(NOT_SUPPORTED.because(|| {
                format!(
                    "{call} refused: create_flags {flags:#x} ask for a key that is not indirect, or for \
                     encryption"
                )
            }));
        }
        let max_pieces =
            attributes.max_entries.checked_next_multiple_of(PIECES_IN_A_UNIT).unwrap_or(u16::MAX);
        let is_invalidated_by_peers = flags & FLAG_REMOTE_INVALIDATE != 0;
        let has_signatures = flags & FLAG_SIGNATURES != 0;
        let init = IndirectKeyInit { max_pieces, is_invalidated_by_peers, has_signatures };
        let keys = context.hca().make_indirect_key(domain.handle(), init)?;
        context.own(OwnedObject::IndirectKey(keys.handle.pack()));
        attributes.max_entries = max_pieces;
        Ok(hand_out(Mkey::new(&domain, keys, init)))
    })
}

pub(crate) extern "C" fn mlx5dv_destroy_mkey(mkey: *mut mlx5dv_mkey) -> c_int {
    let call = Call::mlx5dv_destroy_mkey;
    if !serves() {
        return unsupported::int(call, "");
    }
    status_of(call, CallSubject::of(mkey), || {
        let held = live::<Mkey>(mkey)?;
        let context = held.context()?;
        context.hca().end_indirect_key(held.handle())?;
        context.disown(OwnedObject::IndirectKey(held.handle().pack()));
        take_back::<Mkey>(mkey);
        Ok(())
    })
}

/// Reports whether data of a key did not fit its signatures since the last call.
pub(crate) extern "C" fn _mlx5dv_mkey_check(
    mkey: *mut mlx5dv_mkey,
    err_info: Out<'_, mlx5dv_mkey_err>,
    err_info_size: usize,
) -> c_int {
    let call = Call::_mlx5dv_mkey_check;
    if !serves() {
        return unsupported::int(call, "");
    }
    status_of(call, CallSubject::of(mkey), || {
        let (held, target) = (live::<Mkey>(mkey)?, err_info.required()?);
        if !held.has_signatures() {
            return Err(INVALID.because(|| format!("{call} refused: the key was made without signatures")));
        }
        let error = held.context()?.hca().take_signature_error(held.key()).flatten();
        let found = error.map_or(
            mlx5dv_mkey_err { err_type: NO_ERROR, actual_value: 0, expected_value: 0, offset: 0 },
            |error| mlx5dv_mkey_err {
                err_type: match error.part {
                    SignaturePart::Guard => BAD_GUARD,
                    SignaturePart::RefTag => BAD_REF_TAG,
                    SignaturePart::AppTag => BAD_APP_TAG,
                },
                actual_value: error.calculated,
                expected_value: error.found,
                offset: error.offset,
            },
        );
        target.set_within(&found, err_info_size);
        Ok(())
    })
}

/// Begins a request that configures a key; `setters` further calls complete it.
fn begin(
    mlx5: In<'_, mlx5dv_qp_ex>,
    mkey: Trusted<'_, mlx5dv_mkey>,
    setters: u8,
    attr: &mlx5dv_mkey_conf_attr,
) {
    let Some(qp) = Mlx5Qp::queue_pair_of(mlx5) else { return };
    let (mut max_pieces, mut has_signatures) = (0, false);
    add(qp, SendOpcode::ConfigureKey, |part| {
        let held = qp.held::<Qp>()?;
        if held.next_request().1 & SendFlags::INLINE.bits() == 0 {
            // As on mlx5, the configuration of the key is in the request.
            return Err(NOT_SUPPORTED.because(|| {
                "a request to configure an indirect memory key was refused: set IBV_SEND_INLINE in wr_flags"
                    .to_owned()
            }));
        }
        if attr.conf_flags & !CONF_RESET_SIGNATURE != 0 || attr.comp_mask != 0 {
            return Err(NOT_SUPPORTED);
        }
        let mkey = mkey.held::<Mkey>()?;
        max_pieces = mkey.max_pieces();
        let mut key = KeyConfiguration::new(mkey.key());
        if attr.conf_flags & CONF_RESET_SIGNATURE != 0 && mkey.has_signatures() {
            key.signature = SignatureChange::Reset;
        }
        has_signatures = mkey.has_signatures();
        part.request.key = Some(Arc::new(key));
        Ok(())
    });
    set(qp, |_, series| {
        (series.setters_left, series.max_pieces) = (setters, max_pieces);
        series.key_has_signatures = has_signatures;
        Ok(())
    });
}

/// Limits with which the key of a request was made.
#[derive(Clone, Copy)]
struct KeyLimits {
    max_pieces: usize,
    has_signatures: bool,
}

/// Changes the configuration that is being assembled, as one of the setters that the builder announced.
fn change(
    mlx5: In<'_, mlx5dv_qp_ex>,
    change: impl FnOnce(&mut KeyConfiguration, KeyLimits) -> Result<(), Errno>,
) {
    let Some(qp) = Mlx5Qp::queue_pair_of(mlx5) else { return };
    set(qp, |_, series| {
        if series.refused.is_some() {
            return Ok(());
        }
        let limits = KeyLimits { max_pieces: series.max_pieces, has_signatures: series.key_has_signatures };
        let SendSeries { requests, setters_left, .. } = series;
        *setters_left =
            setters_left.checked_sub(1).ok_or_else(|| invalid("more setters than its builder announced"))?;
        let last = requests.last_mut().and_then(|last| last.request.key.as_mut());
        change(Arc::make_mut(last.ok_or_else(|| invalid("no builder came before a setter"))?), limits)
    });
}

/// Converts blocks and their signatures, of memory or of the wire.
///
/// # Errors
/// Fails with EINVAL if they are not valid for mlx5.
fn blocks_of(domain: *const mlx5dv_sig_block_domain) -> Result<Option<SignedBlocks>, Errno> {
    // SAFETY: the program's pointer, which is NULL or leads to what the header says until the call returns.
    let Some(domain) = unsafe { In::<mlx5dv_sig_block_domain>::new(domain) }.optional() else {
        return Ok(None);
    };
    let unknown = || invalid("a signature whose type, size of blocks, seed or flags are not known");
    let block_bytes = usize::try_from(domain.block_size).ok().and_then(|size| BLOCK_BYTES.get(size).copied());
    let block_bytes = block_bytes.filter(|_| domain.comp_mask == 0).ok_or_else(unknown)?;
    let signature = match domain.sig_type {
        TYPE_T10_DIF => {
            // SAFETY: as above; the type determines what the pointer leads to.
            let dif = unsafe { In::<mlx5dv_sig_t10dif>::new(domain.sig.cast()) }.get()?;
            t10_dif_of(dif)
        }
        TYPE_CRC => {
            // SAFETY: as above.
            let crc = unsafe { In::<mlx5dv_sig_crc>::new(domain.sig.cast()) }.get()?;
            crc_of(crc)
        }
        _ => None,
    };
    Ok(Some(SignedBlocks { block_bytes, signature: signature.ok_or_else(unknown)? }))
}

fn t10_dif_of(dif: &mlx5dv_sig_t10dif) -> Option<BlockSignature> {
    let has_known_seed = dif.bg == 0 || dif.bg == u16::MAX;
    (has_known_seed && dif.bg_type <= 1 && dif.flags < 8).then_some(BlockSignature::T10Dif {
        is_checksum: dif.bg_type == 1,
        seed: dif.bg,
        app_tag: dif.app_tag,
        ref_tag: dif.ref_tag,
        counts: dif.flags & 1 != 0,
        app_escapes: dif.flags & 2 != 0,
        tags_escape: dif.flags & 4 != 0,
    })
}

/// Returns the CRCs, in the order of mlx5's numbers.
fn crc_of(crc: &mlx5dv_sig_crc) -> Option<BlockSignature> {
    let seed = crc.seed as u32;
    let is_short = crc.seed == 0 || crc.seed == u64::from(u32::MAX);
    match crc.r#type {
        0 if is_short => Some(BlockSignature::Crc32 { seed }),
        1 if is_short => Some(BlockSignature::Crc32c { seed }),
        2 if crc.seed == 0 || crc.seed == u64::MAX => Some(BlockSignature::Crc64 { seed: crc.seed }),
        _ => None,
    }
}

extern "C" fn wr_set_mkey_sig_block(mlx5: In<'_, mlx5dv_qp_ex>, attr: In<'_, mlx5dv_sig_block_attr>) {
    value((), || {
        change(mlx5, |key, limits| {
            let attr = attr.get()?;
            let (memory, wire) = (blocks_of(attr.mem)?, blocks_of(attr.wire)?);
            if !limits.has_signatures || matches!(key.signature, SignatureChange::Set(_)) {
                return Err(invalid("signatures twice, or of a key that was made without them"));
            }
            if memory.or(wire).is_none() || attr.flags & !FLAG_COPY_MASK != 0 || attr.comp_mask != 0 {
                return Err(invalid("signatures of neither domain, or with flags that are not known"));
            }
            let copy_mask =
                if attr.flags & FLAG_COPY_MASK != 0 { attr.copy_mask } else { copied(memory, wire) };
            let check_mask = attr.check_mask;
            key.signature = SignatureChange::Set(KeySignature { memory, wire, check_mask, copy_mask });
            Ok(())
        });
    });
}

/// Returns the mask of copied bytes where a program gives none: those that both domains calculate in the same
/// way.
fn copied(memory: Option<SignedBlocks>, wire: Option<SignedBlocks>) -> u8 {
    if memory.is_some() && memory == wire { u8::MAX } else { 0 }
}

/// Sets a field that may be set once.
fn set_once<T>(field: &mut Option<T>, value: T) -> Result<(), Errno> {
    if field.is_some() {
        return Err(invalid("a setter was called twice"));
    }
    *field = Some(value);
    Ok(())
}

extern "C" fn wr_mkey_configure(
    mlx5: In<'_, mlx5dv_qp_ex>,
    mkey: Trusted<'_, mlx5dv_mkey>,
    num_setters: u8,
    attr: In<'_, mlx5dv_mkey_conf_attr>,
) {
    value((), || {
        let none = mlx5dv_mkey_conf_attr { conf_flags: 0, comp_mask: 0 };
        begin(mlx5, mkey, num_setters, attr.optional().unwrap_or(&none));
    });
}

extern "C" fn wr_set_mkey_access_flags(mlx5: In<'_, mlx5dv_qp_ex>, access_flags: u32) {
    value((), || {
        change(mlx5, |key, _| {
            let known =
                Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
            if access_flags & !known.bits() != 0 {
                return Err(invalid(
                    "rights beyond LOCAL_WRITE, REMOTE_WRITE, REMOTE_READ and REMOTE_ATOMIC",
                ));
            }
            set_once(&mut key.access, Access::from_bits_truncate(access_flags))
        });
    });
}

/// Sets the layout, with at most as many pieces as the key was made for.
fn set_layout<T>(
    mlx5: In<'_, mlx5dv_qp_ex>,
    rounds: u32,
    (count, list): (u16, Array<'_, T>),
    piece: impl Fn(&T) -> KeyPiece,
) {
    change(mlx5, |key, KeyLimits { max_pieces, .. }| {
        if usize::from(count) > max_pieces {
            return Err(Errno(libc::ENOMEM).because(|| {
                format!("{count} pieces are more than the {max_pieces} that the memory key was made for")
            }));
        }
        let pieces = list.get(count.into())?.iter().map(piece).collect();
        set_once(&mut key.layout, KeyLayout { pieces, rounds })
    });
}

extern "C" fn wr_set_mkey_layout_list(mlx5: In<'_, mlx5dv_qp_ex>, num_sges: u16, sge: Array<'_, ibv_sge>) {
    value((), || {
        set_layout(mlx5, 1, (num_sges, sge), |sge| KeyPiece {
            address: sge.addr,
            length: sge.length,
            skip: 0,
            lkey: sge.lkey,
        });
    });
}

extern "C" fn wr_set_mkey_layout_interleaved(
    mlx5: In<'_, mlx5dv_qp_ex>,
    repeat_count: u32,
    num_interleaved: u16,
    data: Array<'_, mlx5dv_mr_interleaved>,
) {
    value((), || {
        set_layout(mlx5, repeat_count, (num_interleaved, data), |data| KeyPiece {
            address: data.addr,
            length: data.bytes_count,
            skip: data.bytes_skip,
            lkey: data.lkey,
        });
    });
}

/// Begins a request that sets the rights and the memory of a key, as the older calls do.
fn begin_memory(mlx5: In<'_, mlx5dv_qp_ex>, mkey: Trusted<'_, mlx5dv_mkey>) {
    value((), || {
        begin(mlx5, mkey, SETTERS_OF_REGION, &mlx5dv_mkey_conf_attr { conf_flags: 0, comp_mask: 0 })
    });
}

extern "C" fn wr_mr_list(
    mlx5: In<'_, mlx5dv_qp_ex>,
    mkey: Trusted<'_, mlx5dv_mkey>,
    access_flags: u32,
    num_sges: u16,
    sge: Array<'_, ibv_sge>,
) {
    begin_memory(mlx5, mkey);
    wr_set_mkey_access_flags(mlx5, access_flags);
    wr_set_mkey_layout_list(mlx5, num_sges, sge);
}

extern "C" fn wr_mr_interleaved(
    mlx5: In<'_, mlx5dv_qp_ex>,
    mkey: Trusted<'_, mlx5dv_mkey>,
    access_flags: u32,
    repeat_count: u32,
    num_interleaved: u16,
    data: Array<'_, mlx5dv_mr_interleaved>,
) {
    begin_memory(mlx5, mkey);
    wr_set_mkey_access_flags(mlx5, access_flags);
    wr_set_mkey_layout_interleaved(mlx5, repeat_count, num_interleaved, data);
}

/// Flags of `MLX5DV_QP_EX_WITH_*` for keys: interleaved memory, lists, and the whole configuration of a key.
pub(super) const OPERATION_INTERLEAVED: u64 = 1;
pub(super) const OPERATION_LIST: u64 = 1 << 1;
pub(super) const OPERATION_CONFIGURE: u64 = 1 << 2;

/// Sets the functions for keys that a queue pair was made with.
pub(super) fn fill_operations(c: &mut mlx5dv_qp_ex, operations: u64) {
    if operations & OPERATION_INTERLEAVED != 0 {
        c.wr_mr_interleaved = operation!(wr_mr_interleaved);
    }
    if operations & OPERATION_LIST != 0 {
        c.wr_mr_list = operation!(wr_mr_list);
    }
    if operations & OPERATION_CONFIGURE != 0 {
        c.wr_mkey_configure = operation!(wr_mkey_configure);
        c.wr_set_mkey_access_flags = operation!(wr_set_mkey_access_flags);
        c.wr_set_mkey_layout_list = operation!(wr_set_mkey_layout_list);
        c.wr_set_mkey_layout_interleaved = operation!(wr_set_mkey_layout_interleaved);
        c.wr_set_mkey_sig_block = operation!(wr_set_mkey_sig_block);
    }
}
