//! Congestion control of a queue pair, and its parameters.

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;

use crate::path::Path;

/// Congestion control of a queue pair.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Congestion {
    /// Reaction to CNPs of the peer.
    pub algorithm: CongestionAlgorithm,
    /// Parameters of notifying the peer of marks.
    pub notification: NotificationParameters,
}

/// Algorithm by which a sender slows down.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum CongestionAlgorithm {
    /// The window shrinks.
    #[default]
    Window,
    /// The rate of the packets falls.
    Dcqcn(Arc<DcqcnParameters>),
}

/// Parameters of the notification point, which answers marked packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotificationParameters {
    /// Shortest time between two CNPs of one queue pair, in µs.
    pub min_time_between_cnps: u32,
    /// DSCP of CNPs, 0…63.
    pub cnp_dscp: u8,
}

impl Default for NotificationParameters {
    /// Returns the interval of the paper, and the DSCP of adapters.
    fn default() -> NotificationParameters {
        NotificationParameters { min_time_between_cnps: 50, cnp_dscp: 48 }
    }
}

/// The ECN field of packets that switches may mark.
const ECN_CAPABLE: u8 = 0b10;
const ECN_MASK: u8 = 0b11;

impl Congestion {
    /// Checks that the parameters make sense together.
    ///
    /// # Errors
    /// Fails with a sentence that names the bad parameter and its range.
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

    /// Creates DCQCN with these parameters.
    pub fn dcqcn(parameters: DcqcnParameters, notification: NotificationParameters) -> Congestion {
        Congestion { algorithm: CongestionAlgorithm::Dcqcn(Arc::new(parameters)), notification }
    }

    /// Returns the path with the ECN bits that its packets need: with a rate to lower, they ask switches to
    /// mark them.
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
    /// F: number of increases of one kind that end fast recovery.
    pub rpg_threshold: u32,
    /// Highest rate of a queue pair; 0 for the line rate.
    pub rpg_max_rate: u32,
    /// Increment of the target rate in additive increase.
    pub rpg_ai_rate: u32,
    /// Increment of the target rate for each stage of hyper increase.
    pub rpg_hai_rate: u32,
    /// Binary logarithm of the divisor of alpha (in 1/1024) when the rate is cut: 11 cuts by alpha / 2.
    pub rpg_gd: u8,
    /// Smallest part of the rate that remains after one cut, in per cent.
    pub rpg_min_dec_fac: u8,
    /// Lowest rate.
    pub rpg_min_rate: u32,
    /// Rate at the first CNP, instead of a cut from the line rate; 0 if the line rate is cut.
    pub rate_to_set_on_first_cnp: u32,
    /// Weight 1 − g of the old alpha at each update, in 1/1024.
    pub dce_tcp_g: u16,
    /// Time after which alpha falls if no CNP comes.
    pub dce_tcp_rtt: u32,
    /// Shortest time between two cuts. A CNP that comes earlier cuts at the end of it.
    pub rate_reduce_monitor_period: u32,
    /// Alpha at the first CNP, in 1/1024.
    pub initial_alpha_value: u16,
    /// True if each CNP makes the current rate the target; false if only one after an increase does.
    pub clamp_tgt_rate: bool,
    /// True if an increase by the timer counts for this too, and not only one by the byte counter.
    pub clamp_tgt_rate_after_time_inc: bool,
    /// Bytes that may leave at once after the sender was late, because threads wake later than asked; 0 for
    /// none.
    pub max_burst_bytes: u32,
}

impl DcqcnParameters {
    /// Documented defaults of ConnectX-4 and later, on a link of 100 Gbit/s.
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

    /// Parameters of the paper, on its links of 40 Gbit/s. Its rate of hyper increase is not published: here
    /// it is five times that of additive increase.
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

    /// Checks that the parameters make sense together.
    ///
    /// # Errors
    /// Fails with a sentence that names the bad parameter and its range.
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

    /// Returns the highest rate, in Mbit/s.
    fn most(&self) -> u64 {
        u64::from(if self.rpg_max_rate == 0 { self.line_rate } else { self.rpg_max_rate })
    }

    /// Returns the highest rate, in bit/s.
    pub(super) fn most_bits_per_second(&self) -> u64 {
        bits_per_second(u32::try_from(self.most()).unwrap_or(u32::MAX))
    }
}

/// Converts a rate in Mbit/s to bit/s.
pub(super) const fn bits_per_second(rate: u32) -> u64 {
    rate as u64 * 1_000_000
}
