//! Another number of partitions: every log is copied into streams of the next generation, and then one record says that
//! those stand.
//!
//! Nobody may use the journal meanwhile. That is asked first; and before anything is copied, the streams are closed to
//! appends, which nobody who comes late, or was stopped and continues, can get around. Until the record is
//! replaced, what stood stands, untouched. Whoever is interrupted begins again: what is copied is recognised.

use std::time::Duration;

use async_nats::Client;
use async_nats::jetstream::consumer::DeliverPolicy;
use async_nats::jetstream::consumer::pull::OrderedConfig;
use async_nats::jetstream::context::DeleteStreamErrorKind;
use async_nats::jetstream::stream::Stream;
use async_nats::jetstream::{Context, ErrorCode};
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use tokio::time::timeout;

use super::connect::{self, find, unavailable};
use super::layout::{Layout, text};
use super::record::{Draft, MAX_INLINE_HEAD, Record, checksum};
use super::standing::{self, Former, Standing};
use super::{JetStreamOptions, Servers, users};
use crate::{Error, LogKey, Position};

/// Logs that are copied at the same time.
const WIDTH: usize = 32;
/// Frames of one log in memory.
const FRAMES: usize = 64;
/// How long users have to answer.
const ANSWER: Duration = Duration::from_secs(2);
/// How long a list of logs may stand still.
const SILENCE: Duration = Duration::from_secs(30);

/// Rewrites a frame of a run for its new place; it is given the new position of each frame of the log that was copied
/// before. Or says why it cannot be read.
pub type Relocate<'a> = &'a (dyn Fn(&[u8], &dyn Fn(u64) -> Option<u64>) -> Result<Vec<u8>, String> + Send + Sync);

/// What is told on the way: a partition was copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    pub partition: u16,
    pub of: u16,
    pub logs: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Repartitioned {
    /// The journal had this number already; what an interrupted change had left was removed.
    pub already: bool,
    pub logs: u64,
    pub frames: u64,
}

/// Changes the journal from `from` partitions to `options.partitions`. Safe to be interrupted and to be called again.
pub async fn repartition(
    options: &JetStreamOptions,
    from: u16,
    relocate: Relocate<'_>,
    told: &(dyn Fn(Progress) + Send + Sync),
) -> Result<Repartitioned, Error> {
    let (client, context) = reach(options).await?;
    refuse_users(&client, options).await?;
    let (standing, position) = standing::settle(&context, options).await?;
    let to = options.partitions.get();
    if standing.partitions == to && standing.moving_to.is_none() {
        finish(&context, options, standing, position).await?;
        return Ok(Repartitioned { already: true, ..Repartitioned::default() });
    }
    if standing.partitions != from {
        let has = standing.partitions;
        return Err(unavailable(format!("the journal has {has} partitions, not {from}")));
    }
    // What an earlier change left of its own former generation would be forgotten with the record.
    let (standing, position) = finish(&context, options, standing, position).await?;
    let change = Change { client, context, options, standing, position };
    change.carry_out(to, relocate, told).await
}

/// Gives up a change that was begun: what stood is opened again. Whether there was one.
pub async fn cancel_repartition(options: &JetStreamOptions) -> Result<bool, Error> {
    let (_, context) = reach(options).await?;
    let (standing, position) = standing::settle(&context, options).await?;
    let Some(to) = standing.moving_to else { return Ok(false) };
    // Taken from whoever may be at it, before what they copied goes.
    let taken = Standing { moving_to: Some(to), ..Standing::of(standing.generation, standing.partitions) };
    let position = standing::replace(&context, &options.prefix, position, &taken).await.map_err(overtaken)?;
    let layout = standing.layout(&options.prefix);
    for partition in 0..layout.partitions {
        subscribe(&context, &layout.stream(partition), layout.subjects(partition)).await?;
    }
    subscribe(&context, &layout.claims_stream(), layout.claims_subjects()).await?;
    remove(&context, &next(&layout, to)).await?;
    let back = Standing::of(standing.generation, standing.partitions);
    standing::replace(&context, &options.prefix, position, &back).await.map_err(overtaken)?;
    Ok(true)
}

async fn reach(options: &JetStreamOptions) -> Result<(Client, Context), Error> {
    let (client, _) = connect::connect(options).await?;
    connect::admit_servers(&client, usize::from(options.replicas.get())).await?;
    let context = connect::context(&client, options.answer_within);
    Ok((client, context))
}

async fn refuse_users(client: &Client, options: &JetStreamOptions) -> Result<(), Error> {
    let names = users::list(client, options, ANSWER).await?;
    if names.is_empty() {
        return Ok(());
    }
    let shown: Vec<&str> =
        names.iter().map(|name| if name.is_empty() { "one that does not answer" } else { name }).collect();
    Err(unavailable(format!("replicas use the journal: {}; stop all of them first", shown.join(", "))))
}

fn overtaken(error: Error) -> Error {
    match error {
        Error::Fenced { .. } => unavailable("somebody else changes the journal's layout at the same time"),
        other => other,
    }
}

fn next(layout: &Layout, partitions: u16) -> Layout {
    Layout { prefix: layout.prefix.clone(), generation: layout.generation + 1, partitions }
}

/// Removes the streams of the generation before, if a change has left them.
async fn finish(
    context: &Context,
    options: &JetStreamOptions,
    standing: Standing,
    position: Position,
) -> Result<(Standing, Position), Error> {
    let Some(Former { generation, partitions }) = standing.former else { return Ok((standing, position)) };
    let layout = Layout { prefix: options.prefix.clone(), generation, partitions };
    if generation == 0 {
        // A program that knows of no generations would make these streams anew and begin with an empty journal. One of
        // them stays, empty and closed, at which it stops.
        let kept = layout.stream(0);
        for name in layout.streams().into_iter().filter(|name| *name != kept) {
            remove_stream(context, &name).await?;
        }
        let stream = context.get_stream_no_info(&kept).await;
        let stream = stream.map_err(|error| unavailable(format!("stream {kept}: {error}")))?;
        stream.purge().await.map_err(|error| unavailable(format!("stream {kept}: {error}")))?;
    } else {
        remove(context, &layout).await?;
    }
    let settled = Standing::of(standing.generation, standing.partitions);
    let position = standing::replace(context, &options.prefix, position, &settled).await.map_err(overtaken)?;
    Ok((settled, position))
}

async fn remove(context: &Context, layout: &Layout) -> Result<(), Error> {
    for name in layout.streams() {
        remove_stream(context, &name).await?;
    }
    Ok(())
}

async fn remove_stream(context: &Context, name: &str) -> Result<(), Error> {
    match context.delete_stream(name).await {
        Ok(_) => Ok(()),
        Err(error) => match error.kind() {
            DeleteStreamErrorKind::JetStream(answer) if answer.error_code() == ErrorCode::STREAM_NOT_FOUND => Ok(()),
            _ => Err(unavailable(format!("stream {name} cannot be removed: {error}"))),
        },
    }
}

/// Lets a stream listen on these subjects and no others.
async fn subscribe(context: &Context, name: &str, subjects: String) -> Result<(), Error> {
    let Some(found) = find(context, name).await? else {
        return Err(unavailable(format!("stream {name} is not there")));
    };
    let mut config = found.config;
    if config.subjects == [subjects.clone()] {
        return Ok(());
    }
    config.subjects = vec![subjects];
    let updated = context.update_stream(&config).await;
    updated.map(|_| ()).map_err(|error| unavailable(format!("stream {name} cannot be changed: {error}")))
}

struct Change<'a> {
    client: Client,
    context: Context,
    options: &'a JetStreamOptions,
    standing: Standing,
    position: Position,
}

impl Change<'_> {
    async fn carry_out(
        self,
        to: u16,
        relocate: Relocate<'_>,
        told: &(dyn Fn(Progress) + Send + Sync),
    ) -> Result<Repartitioned, Error> {
        let Self { client, context, options, standing, position } = self;
        let prefix = &options.prefix;
        let (old, new) = (standing.layout(prefix), next(&standing.layout(prefix), to));
        if let Some(other) = standing.moving_to.filter(|other| *other != to) {
            remove(&context, &next(&old, other)).await?;
        }
        let moving = Standing { moving_to: Some(to), ..Standing::of(old.generation, old.partitions) };
        let position = standing::replace(&context, prefix, position, &moving).await.map_err(overtaken)?;
        // One that had read the record before has announced itself by now.
        refuse_users(&client, options).await?;
        for name in old.streams() {
            subscribe(&context, &name, old.closed_subjects(&name)).await?;
        }
        connect::lay_out(&context, options, &new).await?;
        let copy = Copy {
            old: Servers::find(&client, &context, old.clone(), options.answer_within).await?,
            new: Servers::find(&client, &context, new.clone(), options.answer_within).await?,
            relocate,
        };
        let mut copied = Repartitioned::default();
        for partition in 0..old.partitions {
            let (logs, frames) = copy.partition(partition).await?;
            copied.logs += logs;
            copied.frames += frames;
            told(Progress { partition, of: old.partitions, logs });
        }
        let there = logs_in(&copy.new).await?;
        if there != copied.logs {
            let reason = format!("{} logs were copied, and {there} are there", copied.logs);
            return Err(Error::Corrupt { place: "the copy of the journal".into(), reason });
        }
        let former = Former { generation: old.generation, partitions: old.partitions };
        let stands = Standing { former: Some(former), ..Standing::of(new.generation, to) };
        let position = standing::replace(&context, prefix, position, &stands).await.map_err(overtaken)?;
        finish(&context, options, stands, position).await?;
        Ok(copied)
    }
}

async fn logs_in(servers: &Servers) -> Result<u64, Error> {
    let mut logs = 0;
    for stream in &servers.streams {
        let info = stream.get_info().await.map_err(|error| unavailable(error.to_string()))?;
        logs += info.state.subjects_count;
    }
    Ok(logs)
}

struct Copy<'a> {
    old: Servers,
    new: Servers,
    relocate: Relocate<'a>,
}

impl Copy<'_> {
    /// How many logs the partition has, and how many frames were copied now.
    async fn partition(&self, partition: u16) -> Result<(u64, u64), Error> {
        let subjects = subjects(&self.old.streams[usize::from(partition)]);
        let copies = subjects.map(async |subject| {
            let subject = subject?;
            let key = self.old.layout.key(&subject).ok_or_else(|| Error::Corrupt {
                place: format!("partition {partition}"),
                reason: format!("it holds {subject}, which is no log of it"),
            })?;
            self.log(&key).await
        });
        let mut counted = (0, 0);
        let mut copies = std::pin::pin!(copies.buffer_unordered(WIDTH));
        while let Some(frames) = copies.try_next().await? {
            counted = (counted.0 + 1, counted.1 + frames);
        }
        Ok(counted)
    }

    /// The log as far as it is not there yet; how many frames that were.
    async fn log(&self, key: &LogKey) -> Result<u64, Error> {
        let Some(newest) = self.old.newest(key).await? else { return Ok(0) };
        let begun = self.new.newest(key).await?;
        if begun.as_ref().is_some_and(|copy| copy.append_id == newest.append_id) {
            return Ok(0);
        }
        let mut places = Places::default();
        let mut there = Vec::new();
        if begun.is_some() {
            there = self.new.read_records(key, Position(0), usize::MAX).await?;
        }
        let mut there = there.into_iter().map(|(record, _)| record);
        let (mut after, mut copied) = (Position(0), 0);
        loop {
            let records = self.old.read_records(key, after, FRAMES).await?;
            if records.is_empty() {
                return Ok(copied);
            }
            for (record, frame) in records {
                after = record.position;
                let place = match there.next() {
                    Some(copy) if copy.append_id == record.append_id => copy.position,
                    Some(copy) => {
                        let reason = format!("it is the copy of another frame than {}", record.position);
                        return Err(Error::Corrupt { place: copy.place(key), reason });
                    }
                    None => {
                        copied += 1;
                        self.frame(key, &places, &record, frame, newest.position).await?
                    }
                };
                places.add(after, place);
            }
        }
    }

    /// The last message of a run is its index row; the others need none.
    async fn frame(
        &self,
        key: &LogKey,
        places: &Places,
        record: &Record,
        frame: Bytes,
        newest: Position,
    ) -> Result<Position, Error> {
        let place = record.place(key);
        let frame = match key {
            LogKey::Run(_) => {
                let moved = (self.relocate)(&frame, &|old| places.of(old));
                Bytes::from(moved.map_err(|reason| Error::Corrupt { place: place.clone(), reason })?)
            }
            LogKey::Session(..)
            | LogKey::Catalog(_)
            | LogKey::History(_)
            | LogKey::Snapshots(_)
            | LogKey::Snapshot(..) => frame,
        };
        let expected = places.last();
        let head = match &record.head {
            Some(part) if record.position == newest => {
                let text = self.old.bytes(&place, part.clone()).await?;
                Some(self.new.part(key, expected, text, MAX_INLINE_HEAD).await?)
            }
            _ => None,
        };
        let floor = Position(places.of(record.floor.0).unwrap_or_default());
        let sum = checksum(key, expected, floor, &frame);
        let frame = self.new.part(key, expected, frame, self.new.inline_limit()).await?;
        let subject = self.new.layout.subject(key);
        let damaged = || Error::Corrupt { place, reason: "its append id cannot be read".into() };
        let append_id = text(&record.append_id).ok_or_else(damaged)?;
        let draft = Draft { subject: &subject, expected, floor, append_id: &append_id, sum, frame, head };
        self.new.publish_append(key, draft).await
    }
}

/// Where the frames of a log are now, by where they were.
#[derive(Default)]
struct Places(Vec<(u64, u64)>);

impl Places {
    fn add(&mut self, old: Position, new: Position) {
        self.0.push((old.0, new.0));
    }

    fn of(&self, old: u64) -> Option<u64> {
        let found = self.0.binary_search_by_key(&old, |(old, _)| *old).ok()?;
        Some(self.0[found].1)
    }

    fn last(&self) -> Position {
        Position(self.0.last().map_or(0, |(_, new)| *new))
    }
}

/// The subjects that a stream has messages of, each once.
fn subjects(of: &Stream<()>) -> impl stream::Stream<Item = Result<String, Error>> + '_ {
    let failed = |error: &dyn std::fmt::Display| unavailable(format!("the logs cannot be listed: {error}"));
    let listed = async move {
        let info = of.get_info().await.map_err(|error| failed(&error))?;
        if info.state.messages == 0 {
            return Ok(stream::empty().boxed());
        }
        let config = OrderedConfig {
            // Of the messages, not of the stream, which listens to none of them.
            filter_subject: ">".to_owned(),
            deliver_policy: DeliverPolicy::LastPerSubject,
            headers_only: true,
            ..OrderedConfig::default()
        };
        let consumer = of.create_consumer(config).await.map_err(|error| failed(&error))?;
        let messages = consumer.messages().await.map_err(|error| failed(&error))?;
        let each = stream::try_unfold(Some(messages), move |messages| async move {
            let Some(mut messages) = messages else { return Ok(None) };
            let next = timeout(SILENCE, messages.next()).await;
            let message = match next {
                Ok(Some(message)) => message.map_err(|error| failed(&error))?,
                Ok(None) | Err(_) => return Err(failed(&"the servers tell no more of them")),
            };
            let pending = message.info().map_err(|error| failed(&error))?.pending;
            Ok(Some((message.subject.to_string(), (pending > 0).then_some(messages))))
        });
        Ok(each.boxed())
    };
    stream::once(listed).try_flatten()
}
