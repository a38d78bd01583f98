//! The work of one direction of a connection, planned with all its effects.

use pumice_transport::types::*;

use crate::image::Image;
use crate::kit::Random;

/// One planned send request.
#[derive(Debug, Clone)]
pub struct Work {
    pub opcode: SendOpcode,
    pub flags: SendFlags,
    /// Local buffers: offset and length.
    pub buffers: Vec<(usize, u32)>,
    pub inline_data: Vec<u8>,
    pub remote_offset: usize,
    pub imm: [u8; 4],
    pub atomic: Option<AtomicOperation>,
    /// The bytes of a SEND or WRITE.
    pub message: Vec<u8>,
    pub length: u32,
}

impl Work {
    pub fn consumes_receive(&self) -> bool {
        matches!(self.opcode, SendOpcode::Send | SendOpcode::SendWithImm | SendOpcode::RdmaWriteWithImm)
    }
}

/// Where a direction leads.
#[derive(Debug, Clone, Copy)]
pub struct Ends {
    pub from: usize,
    pub to: usize,
    pub qp_type: QpType,
    pub mtu: Mtu,
    /// A word on the target node that all directions add to.
    pub shared_word: usize,
}

/// Plans `count` requests and their effects on the images. What the effects of unreliable or
/// failing directions will be is not foreseen: those areas are loose.
pub fn plan(
    ends: Ends,
    count: usize,
    depth: u32,
    certain: bool,
    images: &mut [Image],
    random: &mut Random,
) -> Vec<Work> {
    let mut planner = Planner { ends, certain, word: None, hot: None, images, random };
    let mut works: Vec<Work> = (0..count).map(|index| planner.work(index)).collect();
    // An entry comes back only with a polled completion: never a queue full of unsignaled requests.
    let mut unsignaled = 0;
    for (index, work) in works.iter_mut().enumerate() {
        let last = index + 1 == count;
        if unsignaled + 1 >= depth || last || planner.random.percent(50) {
            work.flags |= SendFlags::SIGNALED;
            unsignaled = 0;
        } else {
            unsignaled += 1;
        }
    }
    works
}

struct Planner<'a> {
    ends: Ends,
    certain: bool,
    /// The direction's own word for atomics.
    word: Option<usize>,
    /// An area that several WRITEs overwrite.
    hot: Option<usize>,
    images: &'a mut [Image],
    random: &'a mut Random,
}

const HOT_BYTES: usize = 6_000;

impl Planner<'_> {
    fn length(&mut self) -> usize {
        let mtu = self.ends.mtu.bytes();
        if self.ends.qp_type == QpType::Ud {
            return self.random.between(0, mtu as u64) as usize;
        }
        match self.random.below(8) {
            0 => 0,
            1 => self.random.between(1, 64) as usize,
            2 => mtu * self.random.between(1, 4) as usize,
            3 => mtu * self.random.between(1, 4) as usize + 1,
            4 | 5 => self.random.between(1, mtu as u64) as usize,
            _ => self.random.between(1, 10 * mtu as u64) as usize,
        }
    }

    fn opcode(&mut self) -> SendOpcode {
        use SendOpcode as Op;
        match self.ends.qp_type {
            QpType::Ud => Op::SendWithImm,
            QpType::Uc => {
                self.random.choose(&[Op::SendWithImm, Op::SendWithImm, Op::RdmaWrite, Op::RdmaWriteWithImm])
            }
            _ => self.random.choose(&[
                Op::Send,
                Op::Send,
                Op::SendWithImm,
                Op::RdmaWrite,
                Op::RdmaWrite,
                Op::RdmaWriteWithImm,
                Op::RdmaRead,
                Op::RdmaRead,
                Op::CompareSwap,
                Op::FetchAdd,
                Op::FetchAdd,
                Op::AtomicWrite,
            ]),
        }
    }

    fn work(&mut self, index: usize) -> Work {
        let opcode = self.opcode();
        let mut flags = SendFlags::empty();
        flags.set(SendFlags::FENCE, self.random.percent(15));
        flags.set(SendFlags::SOLICITED, self.random.percent(20));
        let mut work = Work {
            opcode,
            flags,
            buffers: Vec::new(),
            inline_data: Vec::new(),
            remote_offset: 0,
            imm: (index as u32).to_be_bytes(),
            atomic: None,
            message: Vec::new(),
            length: 0,
        };
        match opcode {
            SendOpcode::RdmaRead => self.read(&mut work),
            SendOpcode::CompareSwap | SendOpcode::FetchAdd => self.atomic(&mut work),
            SendOpcode::AtomicWrite => self.atomic_write(&mut work),
            _ => self.message(&mut work),
        }
        work
    }

    /// Splits an area into one or two buffers.
    fn split(&mut self, offset: usize, length: usize) -> Vec<(usize, u32)> {
        if length > 1 && self.random.percent(30) {
            let first = self.random.between(1, length as u64 - 1) as usize;
            vec![(offset, first as u32), (offset + first, (length - first) as u32)]
        } else {
            vec![(offset, length as u32)]
        }
    }

    /// A new target area on the far side, or part of the area that is overwritten all the time.
    fn target(&mut self, length: usize) -> usize {
        let to = self.ends.to;
        if length <= HOT_BYTES && self.random.percent(25) {
            let hot = match self.hot {
                Some(hot) => hot,
                None => self.images[to].area(&vec![0x11; HOT_BYTES]),
            };
            self.hot = Some(hot);
            return hot + self.random.between(0, (HOT_BYTES - length) as u64) as usize;
        }
        let before = self.random.bytes(length);
        self.images[to].area(&before)
    }

    fn affect(&mut self, node: usize, offset: usize, bytes: &[u8]) {
        let image = &mut self.images[node];
        image.expect(offset, bytes);
        if !self.certain {
            image.loosen(offset, bytes.len());
        }
    }

    fn message(&mut self, work: &mut Work) {
        let length = self.length();
        let message = self.random.bytes(length);
        if length <= 64 && self.random.percent(40) {
            work.flags |= SendFlags::INLINE;
            work.inline_data = message.clone();
        } else {
            let offset = self.images[self.ends.from].area(&message);
            work.buffers = self.split(offset, length);
        }
        if matches!(work.opcode, SendOpcode::RdmaWrite | SendOpcode::RdmaWriteWithImm) {
            work.remote_offset = self.target(length);
            self.affect(self.ends.to, work.remote_offset, &message);
        }
        work.length = length as u32;
        work.message = message;
    }

    fn read(&mut self, work: &mut Work) {
        let length = self.length();
        let data = self.random.bytes(length);
        work.remote_offset = self.images[self.ends.to].area(&data);
        let offset = self.images[self.ends.from].area(&vec![0; length]);
        work.buffers = self.split(offset, length);
        self.affect(self.ends.from, offset, &data);
        work.length = length as u32;
    }

    fn own_word(&mut self) -> usize {
        let first = self.random.bytes(8);
        let to = self.ends.to;
        *self.word.get_or_insert_with(|| self.images[to].area(&first))
    }

    fn atomic(&mut self, work: &mut Work) {
        let result = self.images[self.ends.from].area(&[0; 8]);
        work.buffers = vec![(result, 8)];
        work.length = 8;
        let operand = self.random.next();
        if work.opcode == SendOpcode::FetchAdd && self.random.percent(50) {
            // Others add as well: what was there before is not foreseen, the sum is.
            work.remote_offset = self.ends.shared_word;
            work.atomic = Some(AtomicOperation::FetchAdd { add: operand });
            self.images[self.ends.from].loosen(result, 8);
            self.images[self.ends.to].expect_added(self.ends.shared_word, operand);
            if !self.certain {
                self.images[self.ends.to].loosen(self.ends.shared_word, 8);
            }
            return;
        }
        let word = self.own_word();
        work.remote_offset = word;
        let before: [u8; 8] = self.images[self.ends.to].expected(word, 8).try_into().unwrap();
        let value = u64::from_ne_bytes(before);
        let after = if work.opcode == SendOpcode::FetchAdd {
            work.atomic = Some(AtomicOperation::FetchAdd { add: operand });
            value.wrapping_add(operand)
        } else {
            let compare = if self.random.percent(60) { value } else { !value };
            work.atomic = Some(AtomicOperation::CompareSwap { compare, swap: operand });
            if compare == value { operand } else { value }
        };
        self.affect(self.ends.from, result, &before);
        self.affect(self.ends.to, word, &after.to_ne_bytes());
    }

    fn atomic_write(&mut self, work: &mut Work) {
        let data = self.random.bytes(8);
        let offset = self.images[self.ends.from].area(&data);
        work.buffers = vec![(offset, 8)];
        work.length = 8;
        work.remote_offset = self.own_word();
        self.affect(self.ends.to, work.remote_offset, &data);
    }
}
