//! TensorBoard's events as bytes: protocol buffers inside records with checksums.
//!
//! The messages are `Event`, `Summary` and `HistogramProto` of TensorFlow (`tensorflow/core/util/event.proto`,
//! `framework/summary.proto`); a record is its length, the length's checksum, the message, the message's checksum
//! (`core/lib/io/record_writer.h`).

/// A message `Event` in the making.
#[derive(Debug)]
pub(super) struct Event {
    message: Message,
    summary: Message,
}

impl Event {
    /// The first event of every file.
    pub(super) fn version(seconds: f64) -> Self {
        let mut event = Self::at(seconds, 0);
        event.message.bytes(3, b"brain.Event:2");
        event
    }

    /// Says that events of earlier files at `step` and after it don't count any more.
    pub(super) fn restart(seconds: f64, step: u64) -> Self {
        const START: u64 = 1;
        let mut session = Message::default();
        session.varint(1, START);
        let mut event = Self::at(seconds, step);
        event.message.bytes(7, &session.0);
        event
    }

    pub(super) fn at(seconds: f64, step: u64) -> Self {
        let mut message = Message::default();
        message.double(1, seconds);
        message.varint(2, step);
        Self {
            message,
            summary: Message::default(),
        }
    }

    pub(super) fn scalar(&mut self, tag: &str, value: f64) {
        let mut entry = Message::default();
        entry.bytes(1, tag.as_bytes());
        entry.float(2, value as f32);
        self.summary.bytes(1, &entry.0);
    }

    pub(super) fn histogram(&mut self, tag: &str, histogram: &Histogram) {
        let mut entry = Message::default();
        entry.bytes(1, tag.as_bytes());
        entry.bytes(5, &histogram.message().0);
        self.summary.bytes(1, &entry.0);
    }

    /// The event as it stands in a file.
    pub(super) fn record(mut self) -> Vec<u8> {
        if !self.summary.0.is_empty() {
            self.message.bytes(5, &self.summary.0);
        }
        let message = self.message.0;
        let length = (message.len() as u64).to_le_bytes();
        let mut record = length.to_vec();
        record.extend(masked_crc(&length).to_le_bytes());
        record.extend(&message);
        record.extend(masked_crc(&message).to_le_bytes());
        record
    }
}

/// How the values of a tensor are spread.
pub(super) struct Histogram {
    min: f64,
    max: f64,
    count: f64,
    sum: f64,
    squares: f64,
    /// The upper end of each bucket, and how many values lie in it.
    buckets: Vec<(f64, f64)>,
}

impl Histogram {
    /// Thirty buckets of equal width over the finite values; `None` if there are none.
    pub(super) fn of(values: &[f64]) -> Option<Self> {
        const BUCKETS: usize = 30;
        let finite = || values.iter().copied().filter(|value| value.is_finite());
        let min = finite().reduce(f64::min)?;
        let max = finite().reduce(f64::max)?;
        let width = (max - min) / BUCKETS as f64;
        let mut counts = [0.0; BUCKETS];
        for value in finite() {
            // Of a width of 0 the quotient is NaN, which becomes bucket 0.
            let bucket = ((value - min) / width) as usize;
            counts[bucket.min(BUCKETS - 1)] += 1.0;
        }
        let ends = (1..=BUCKETS).map(|bucket| min + width * bucket as f64);
        Some(Self {
            min,
            max,
            count: finite().count() as f64,
            sum: finite().sum(),
            squares: finite().map(|value| value * value).sum(),
            buckets: ends.zip(counts).collect(),
        })
    }

    fn message(&self) -> Message {
        let mut message = Message::default();
        let numbers = [self.min, self.max, self.count, self.sum, self.squares];
        for (field, number) in (1..).zip(numbers) {
            message.double(field, number);
        }
        let (ends, counts): (Vec<f64>, Vec<f64>) = self.buckets.iter().copied().unzip();
        message.doubles(6, &ends);
        message.doubles(7, &counts);
        message
    }
}

/// A protocol buffer: fields one after the other, each with its number and the type of its encoding.
#[derive(Debug, Default)]
struct Message(Vec<u8>);

impl Message {
    fn key(&mut self, field: u64, encoding: u64) {
        self.number(field << 3 | encoding);
    }

    fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }

    fn varint(&mut self, field: u64, number: u64) {
        self.key(field, 0);
        self.number(number);
    }

    fn double(&mut self, field: u64, number: f64) {
        self.key(field, 1);
        self.0.extend(number.to_le_bytes());
    }

    fn float(&mut self, field: u64, number: f32) {
        self.key(field, 5);
        self.0.extend(number.to_le_bytes());
    }

    fn bytes(&mut self, field: u64, bytes: &[u8]) {
        self.key(field, 2);
        self.number(bytes.len() as u64);
        self.0.extend(bytes);
    }

    fn doubles(&mut self, field: u64, numbers: &[f64]) {
        let bytes: Vec<u8> = numbers
            .iter()
            .flat_map(|number| number.to_le_bytes())
            .collect();
        self.bytes(field, &bytes);
    }
}

/// TensorFlow's mask over CRC-32C, so that a checksum of bytes that hold a checksum is not weak.
fn masked_crc(bytes: &[u8]) -> u32 {
    crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}

/// CRC-32 with Castagnoli's polynomial, a bit at a time: events are small.
fn crc32c(bytes: &[u8]) -> u32 {
    const POLYNOMIAL: u32 = 0x82f6_3b78;
    let step = |crc: u32, _| (crc >> 1) ^ if crc & 1 == 1 { POLYNOMIAL } else { 0 };
    !bytes
        .iter()
        .fold(!0, |crc, &byte| (0..8).fold(crc ^ u32::from(byte), step))
}
