//! Sizes of flows: a cumulative distribution, sampled with integers.
//!
//! A distribution is a list of points (bytes, share of flows that are no larger) and a rule for the values between
//! two points: evenly distributed over the bytes (`linear`), or over their logarithm (`log`). `distribution/file.rs`
//! reads the text forms.
//!
//! The built-in distributions are listed below by name. Half of IRN's flows are single packets of 32 B to 1 KB, 15 %
//! have 200 KB to 3 MB, the rest have a size in between (section 4.1; the log-uniform distribution inside each range
//! is OpenRNIC's choice; mean 168 KB). The points of the second and third distribution are those published with
//! pFabric (SIGCOMM'13) and its successors.
//!
//! Two forms need no file: `uniform:500KB-5MB`, every size between the two equally likely, and `fixed:8KB`.
//!
//! | name | source |
//! |---|---|
//! | `irn-heavy-tail` | IRN (SIGCOMM'18) section 4.1 |
//! | `web-search` | DCTCP (SIGCOMM'10): a cluster that serves queries |
//! | `data-mining` | VL2 (SIGCOMM'09): a cluster that runs MapReduce |
//! | `uniform` | IRN section 4.4.1: 500 KB to 5 MB, evenly |

mod file;

use rnic_base::{Bytes, RandomStream};

use super::text::ReadError;

pub use file::{ShareMeaning, SizesForm};

/// A distribution of flow sizes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Distribution {
    /// The points, increasing in bytes and share.
    points: Vec<Point>,
    /// Between points `i` and `i + 1`: the successive square roots of the ratio of their bytes, for logarithmic
    /// interpolation.
    roots: Option<Vec<[u64; EXPONENT_BITS]>>,
    mean_milli_bytes: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Point {
    bytes: u64,
    /// Share of flows that are no larger, in units of 1 / [`SHARE_ONE`].
    share: u64,
}

/// Built-in distributions, with their text.
pub const BUILT_IN: &[(&str, &str)] = &[
    ("irn-heavy-tail", "interpolation log\n32 0\n1KB 50%\n200KB 85%\n3MB 100%\n"),
    (
        "web-search",
        "1 0\n10KB 15%\n20KB 20%\n30KB 30%\n50KB 40%\n80KB 53%\n\
         200KB 60%\n1MB 70%\n2MB 80%\n5MB 90%\n10MB 97%\n30MB 100%\n",
    ),
    ("data-mining", "1460 50%\n2920 60%\n4380 70%\n10220 80%\n389820 90%\n3076220 95%\n97333820 99%\n973333820 100%\n"),
    ("uniform", "500KB 0\n5MB 100%\n"),
];

impl Distribution {
    /// Returns the built-in distribution called `name`.
    ///
    /// # Panics
    /// Never: a test parses all of them.
    pub fn built_in(name: &str) -> Option<Self> {
        let (_, text) = BUILT_IN.iter().find(|(built_in, _)| *built_in == name)?;
        Some(Self::from_text(text).expect("a built-in distribution is valid"))
    }

    /// Returns a distribution in which every flow has `bytes`.
    pub fn fixed(bytes: u64) -> Self {
        Self::new(vec![Point { bytes, share: SHARE_ONE }], false)
    }

    /// Returns a distribution in which sizes from `low` to `high` are equally likely.
    ///
    /// # Panics
    /// When the sizes are not in order, or larger than a message can be; callers check both.
    pub fn uniform(low: u64, high: u64) -> Self {
        assert!((1..=high).contains(&low) && high <= rnic_base::limits::MESSAGE_BYTES_MAX, "{low} to {high}");
        Self::new(vec![Point { bytes: low, share: 0 }, Point { bytes: high, share: SHARE_ONE }], false)
    }

    /// Reads a form such as `uniform:500KB-5MB` or `fixed:8KB`; returns `None` when the text is neither.
    ///
    /// # Errors
    /// A description of the error in the sizes of the form.
    pub fn from_form(form: &str) -> Option<Result<Self, String>> {
        let size = |text: &str| {
            let bytes = text.trim().parse::<Bytes>().map_err(|error| error.to_string())?.get();
            let legal = (1..=rnic_base::limits::MESSAGE_BYTES_MAX).contains(&bytes);
            let what = || {
                format!("the size is out of range; sizes must be 1 to {} bytes", rnic_base::limits::MESSAGE_BYTES_MAX)
            };
            if legal { Ok(bytes) } else { Err(what()) }
        };
        let (kind, rest) = form.split_once(':')?;
        match kind {
            "fixed" => Some(size(rest).map(Self::fixed)),
            "uniform" => Some(
                rest.split_once('-')
                    .ok_or_else(|| "`uniform` requires two sizes, such as uniform:500KB-5MB".to_owned())
                    .and_then(|(low, high)| {
                        let (low, high) = (size(low)?, size(high)?);
                        if low > high {
                            Err(format!("the lower size, {low} bytes, exceeds the upper size, {high} bytes"))
                        } else {
                            Ok(Self::uniform(low, high))
                        }
                    }),
            ),
            _ => None,
        }
    }

    /// Reads a file of sizes whose first lines say what its numbers mean, if that is not evident.
    ///
    /// # Errors
    /// The first invalid line and the reason.
    pub fn from_text(text: &str) -> Result<Self, ReadError> {
        Self::from_file(text, SizesForm::default())
    }

    /// Reads a file of sizes.
    ///
    /// # Errors
    /// The first invalid line and the reason.
    pub fn from_file(text: &str, form: SizesForm) -> Result<Self, ReadError> {
        let (points, is_logarithmic) = file::read(text, form)?;
        Ok(Self::new(points, is_logarithmic))
    }

    fn new(points: Vec<Point>, logarithmic: bool) -> Self {
        let roots =
            logarithmic.then(|| points.windows(2).map(|pair| roots_of_ratio(pair[0].bytes, pair[1].bytes)).collect());
        let mut distribution = Self { points, roots, mean_milli_bytes: 0 };
        distribution.mean_milli_bytes = distribution.mean();
        distribution
    }

    /// Returns the mean, in thousandths of a byte.
    pub fn mean_milli_bytes(&self) -> u64 {
        self.mean_milli_bytes
    }

    /// Returns the largest flow size.
    pub fn largest(&self) -> u64 {
        self.points.last().map_or(0, |point| point.bytes)
    }

    /// Returns a random size.
    pub fn draw(&self, stream: &mut RandomStream) -> u64 {
        self.at(stream.below(SHARE_ONE)).max(1)
    }

    /// Returns the quantile of the flow size at `share` / [`SHARE_ONE`]: the inverse of the distribution function.
    fn at(&self, share: u64) -> u64 {
        let upper = self.points.partition_point(|point| point.share <= share);
        if upper == 0 {
            return self.points[0].bytes;
        }
        let (low, high) = (self.points[upper - 1], self.points[upper]);
        let (part, whole) = (share - low.share, high.share - low.share);
        match &self.roots {
            Some(roots) => spread_over_logarithm(low.bytes, &roots[upper - 1], part, whole),
            None => low.bytes + (u128::from(high.bytes - low.bytes) * u128::from(part) / u128::from(whole)) as u64,
        }
    }

    /// Returns the mean of the values of [`Distribution::draw`]: the average over a grid of each segment, accurate to 1
    /// in 10^5.
    fn mean(&self) -> u64 {
        const STEPS: u64 = 4_096;
        let mut milli = u128::from(self.points[0].bytes) * u128::from(self.points[0].share) * 1_000;
        for pair in self.points.windows(2) {
            let width = pair[1].share - pair[0].share;
            let middles = (0..STEPS).map(|step| {
                pair[0].share + (u128::from(width) * u128::from(2 * step + 1) / u128::from(2 * STEPS)) as u64
            });
            let sum: u128 = middles.filter(|_| width > 0).map(|share| u128::from(self.at(share))).sum();
            milli += sum * 1_000 / u128::from(STEPS) * u128::from(width);
        }
        u64::try_from(milli / u128::from(SHARE_ONE)).unwrap_or(u64::MAX)
    }
}

/// Returns the successive square roots of `high / low`, as 32.32 fixed-point numbers.
fn roots_of_ratio(low: u64, high: u64) -> [u64; EXPONENT_BITS] {
    let mut root = (u128::from(high) << 64) / u128::from(low.max(1));
    let mut roots = [0; EXPONENT_BITS];
    for root_of_step in &mut roots {
        // The square root of a number with 64 fractional bits has 32 fractional bits.
        let next = root.isqrt();
        *root_of_step = next as u64;
        root = next << 32;
    }
    roots
}

/// Returns `low * ratio^(part / whole)`, from the roots that the binary digits of the exponent select.
fn spread_over_logarithm(low: u64, roots: &[u64; EXPONENT_BITS], part: u64, whole: u64) -> u64 {
    let exponent = ((u128::from(part) << EXPONENT_BITS) / u128::from(whole)) as u64;
    // 32 fractional bits: sizes are below 2^31, so a product with a factor below 2^31 fits into 128 bits.
    let mut value = u128::from(low) << 32;
    for (root, digit) in roots.iter().zip((0..EXPONENT_BITS).rev()) {
        if exponent >> digit & 1 == 1 {
            value = (value * u128::from(*root)) >> 32;
        }
    }
    (value >> 32) as u64
}

/// The number that represents the share of all flows.
const SHARE_ONE: u64 = 1_000_000_000_000;

/// Number of binary digits of the exponent: a step of 2^-24 of a decade is less than a byte for sizes below a megabyte.
const EXPONENT_BITS: usize = 24;
