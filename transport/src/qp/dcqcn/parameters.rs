//! What a queue pair does about congestion, and the parameters of it.

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;

use crate::path::Path;

/// What a queue pair does about congestion.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Congestion {
    /// How it slows down when the peer sends CNPs.
    pub algorithm: CongestionAlgorithm,
    /// How it tells the peer of marks.
    pub notification: NotificationParameters,
}

/// How a sender slows down.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum CongestionAlgorithm {
    /// Its window shrinks.
    #[default]
    Window,
    /// Its packets leave at a rate, which falls.
    Dcqcn(Arc<DcqcnParameters>),
}

/// The notification point: when marked packets are answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotificationParameters {
    /// Least time between two CNPs of one queue pair, in µs.
    pub min_time_between_cnps: u32,
    /// DSCP of CNPs, 0…63.
    pub cnp_dscp: u8,
}

impl Default for NotificationParameters {
    /// The interval of the paper, and the DSCP of adapters.
    fn default() -> NotificationParameters {
        NotificationParameters { min_time_between_cnps: 50, cnp_dscp: 48 }
    }
}

/// ECN field of packets that switches may mark.
const ECN_CAPABLE: u8 = 0b10;
const ECN_MASK: u8 = 0b11;

impl Congestion {
    /// Whether the parameters make sense together.
    ///
    /// # Errors
    /// A sentence: which one does not, and what it may be.
    pub fn check(&self) -> Result<(), String> {
        let NotificationParameters { min_time_between_cnps, cnp_dscp } = self.notification;
        if min_time_between_cnps > 4095 {
            return Err(format!(
                "min_time_between_cnps is {min_time_between_cnps}, and must be from 0 to 4095"
            ));
        }
        if cnp_dscp > 63 {
            return Err(format!("cnp_dscp is {cnp_dscp}, and must be from 0 to 63"));
        }
        match &self.algorithm {
            CongestionAlgorithm::Window => Ok(()),
            CongestionAlgorithm::Dcqcn(parameters) => parameters.check(),
        }
    }

    /// DCQCN with these parameters.
    pub fn dcqcn(parameters: DcqcnParameters, notification: NotificationParameters) -> Congestion {
        Congestion { algorithm: CongestionAlgorithm::Dcqcn(Arc::new(parameters)), notification }
    }

    /// The path as packets take it: with a rate to lower, they ask switches to mark them.
    pub(crate) fn marked(&self, mut path: Arc<Path>) -> Arc<Path> {
        let plain = path.traffic_class & ECN_MASK == 0;
        if plain && self.algorithm != CongestionAlgorithm::Window {
            Arc::make_mut(&mut path).traffic_class |= ECN_CAPABLE;
        }
        path
    }
}

/// The reaction point's parameters. Rates are in Mbit/s, times in µs. [`DcqcnParameters::CONNECTX`] are the
/// defaults that NVIDIA documents for ConnectX-4 and later, [`DcqcnParameters::PAPER`] those of the paper.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(clippy::struct_field_names)]
pub struct DcqcnParameters {
    /// Rate of the port's link: no queue pair sends faster.
    pub line_rate: u32,
    /// Time between two increases by the timer.
    pub rpg_time_reset: u32,
    /// Bytes between two increases by the byte counter.
    pub rpg_byte_reset: u32,
    /// F: so many increases of one kind end fast recovery.
    pub rpg_threshold: u32,
    /// The most that a queue pair sends; 0: the line rate.
    pub rpg_max_rate: u32,
    /// What the target rate grows by in additive increase.
    pub rpg_ai_rate: u32,
    /// What it grows by for each stage of hyper increase.
    pub rpg_hai_rate: u32,
    /// log2 of what alpha, in 1/1024, is divided by when the rate is cut: 11 cuts by alpha / 2.
    pub rpg_gd: u8,
    /// Per cent of the rate that one cut leaves at least.
    pub rpg_min_dec_fac: u8,
    /// The least rate.
    pub rpg_min_rate: u32,
    /// Rate at the first CNP, in place of a cut from the line rate; 0: the line rate is cut.
    pub rate_to_set_on_first_cnp: u32,
    /// 1 − g in 1/1024: what is kept of alpha at each update.
    pub dce_tcp_g: u16,
    /// Time after which alpha falls if no CNP comes.
    pub dce_tcp_rtt: u32,
    /// Least time between two cuts. A CNP that comes earlier cuts at the end of it.
    pub rate_reduce_monitor_period: u32,
    /// Alpha at the first CNP, in 1/1024.
    pub initial_alpha_value: u16,
    /// Each CNP makes the current rate the target; else only one after an increase does.
    pub clamp_tgt_rate: bool,
    /// For that an increase by the timer counts too, and not only one by the byte counter.
    pub clamp_tgt_rate_after_time_inc: bool,
    /// What may leave at once after the sender was late, in bytes: threads wake later than asked. 0: none.
    pub max_burst_bytes: u32,
}

impl DcqcnParameters {
    /// The documented defaults of ConnectX-4 and later, on a link of 100 Gbit/s.
    pub const CONNECTX: DcqcnParameters = DcqcnParameters {
        line_rate: 100_000,
        rpg_time_reset: 300,
        rpg_byte_reset: 32_767,
        rpg_threshold: 1,
        rpg_max_rate: 0,
        rpg_ai_rate: 5,
        rpg_hai_rate: 50,
        rpg_gd: 11,
        rpg_min_dec_fac: 50,
        rpg_min_rate: 1,
        rate_to_set_on_first_cnp: 0,
        dce_tcp_g: 1019,
        dce_tcp_rtt: 1,
        rate_reduce_monitor_period: 4,
        initial_alpha_value: 1023,
        clamp_tgt_rate: false,
        clamp_tgt_rate_after_time_inc: true,
        max_burst_bytes: 65_536,
    };

    /// The paper's, on its links of 40 Gbit/s. Its rate of hyper increase is not published: five times that
    /// of additive increase here.
    pub const PAPER: DcqcnParameters = DcqcnParameters {
        line_rate: 40_000,
        rpg_time_reset: 55,
        rpg_byte_reset: 10_000_000,
        rpg_threshold: 5,
        rpg_max_rate: 0,
        rpg_ai_rate: 40,
        rpg_hai_rate: 200,
        rpg_gd: 11,
        rpg_min_dec_fac: 50,
        rpg_min_rate: 10,
        rate_to_set_on_first_cnp: 0,
        dce_tcp_g: 1020,
        dce_tcp_rtt: 55,
        rate_reduce_monitor_period: 0,
        initial_alpha_value: 1024,
        clamp_tgt_rate: true,
        clamp_tgt_rate_after_time_inc: true,
        max_burst_bytes: 0,
    };

    /// Whether the parameters make sense together.
    ///
    /// # Errors
    /// A sentence: which one does not, and what it may be.
    pub fn check(&self) -> Result<(), String> {
        let line = u64::from(self.line_rate);
        let ranges: [(&str, u64, u64, u64); 16] = [
            ("line_rate", line, 1, 1_600_000),
            ("rpg_time_reset", self.rpg_time_reset.into(), 1, 131_071),
            ("rpg_byte_reset", self.rpg_byte_reset.into(), 1024, 2_147_483_647),
            ("rpg_threshold", self.rpg_threshold.into(), 1, 31),
            ("rpg_max_rate", self.rpg_max_rate.into(), 0, line),
            ("rpg_ai_rate", self.rpg_ai_rate.into(), 1, line),
            ("rpg_hai_rate", self.rpg_hai_rate.into(), 1, line),
            ("rpg_gd", self.rpg_gd.into(), 10, 15),
            ("rpg_min_dec_fac", self.rpg_min_dec_fac.into(), 0, 100),
            ("rpg_min_rate", self.rpg_min_rate.into(), 1, self.most()),
            ("rate_to_set_on_first_cnp", self.rate_to_set_on_first_cnp.into(), 0, self.most()),
            ("dce_tcp_g", self.dce_tcp_g.into(), 0, 1023),
            ("dce_tcp_rtt", self.dce_tcp_rtt.into(), 1, 131_071),
            ("rate_reduce_monitor_period", self.rate_reduce_monitor_period.into(), 0, 131_071),
            ("initial_alpha_value", self.initial_alpha_value.into(), 1, 1024),
            ("max_burst_bytes", self.max_burst_bytes.into(), 0, 1 << 24),
        ];
        for (name, value, lowest, highest) in ranges {
            if !(lowest..=highest).contains(&value) {
                return Err(format!("{name} is {value}, and must be from {lowest} to {highest}"));
            }
        }
        Ok(())
    }

    /// The highest rate, in Mbit/s.
    fn most(&self) -> u64 {
        u64::from(if self.rpg_max_rate == 0 { self.line_rate } else { self.rpg_max_rate })
    }

    /// The highest rate, in bit/s.
    pub(super) fn most_bits_per_second(&self) -> u64 {
        bits_per_second(u32::try_from(self.most()).unwrap_or(u32::MAX))
    }
}

/// A rate in Mbit/s as bit/s.
pub(super) const fn bits_per_second(rate: u32) -> u64 {
    rate as u64 * 1_000_000
}
