//! The thread that owns the engine: it takes commands between two steps, steps while there is a request, and sends each
//! sequence's progress to the request that waits for it.

use anyhow::{Context as _, Result, anyhow};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Instant;
use tokio::sync::{mpsc as async_mpsc, oneshot};
use train::config::TaskMarkers;
use train::infer::Scored;
use train::infer::engine::{
    Adapter, AdapterId, AdapterReader, Counts, Engine, Event, Finish, Request,
};

/// Progress of one sequence of a group.
pub(super) struct Note {
    /// Number of the sequence in its group.
    pub(super) number: usize,
    pub(super) at: Instant,
    pub(super) progress: Progress,
}

/// The news of a sequence.
#[derive(Debug)]
pub(super) enum Progress {
    /// It left the queue.
    Started,
    /// Its prompt was computed.
    Prompt {
        scores: Vec<Option<Scored>>,
        cached: usize,
    },
    /// A new token.
    Token { token: u32, scored: Option<Scored> },
    /// Nothing follows.
    Finished(Finish),
    /// The engine did not take it.
    Refused(String),
    /// A step failed; nothing follows.
    Failed(String),
    /// The server ends; nothing follows.
    Ended,
}

/// Sequences of one HTTP request, submitted together.
struct Submission {
    group: u64,
    requests: Vec<Request>,
    notes: async_mpsc::UnboundedSender<Note>,
}

enum Command {
    Submit(Submission),
    /// Ends the sequence of this number in a group, or all of them.
    Cancel {
        group: u64,
        number: Option<usize>,
    },
    /// Ends all sequences, as the server ends.
    End,
    /// Answered between two steps.
    Ask(oneshot::Sender<()>),
    /// Puts an adapter beside the model.
    Add {
        adapter: Adapter,
        answer: oneshot::Sender<Result<AdapterId, String>>,
    },
    /// Unloads one.
    Unload(AdapterId),
}

/// Facts of an opened model.
#[derive(Clone, Debug)]
pub(super) struct Facts {
    pub(super) max_length: usize,
    pub(super) vocab: usize,
    /// Whether the prompt is an encoder's, so that it shares no room with the answer.
    pub(super) is_encoder_decoder: bool,
    pub(super) parameters: u64,
    /// Markers of virtual tokens of each task; empty: the model has none.
    pub(super) markers: Vec<TaskMarkers>,
}

/// The front's end of the engine thread.
#[derive(Clone)]
pub(super) struct EngineHandle {
    commands: mpsc::Sender<Command>,
    counts: Arc<Mutex<Counts>>,
    groups: Arc<AtomicU64>,
    /// None for a model without adapters beside it.
    adapters: Option<AdapterReader>,
    pub(super) facts: Facts,
}

/// A group's number and its news.
pub(super) struct Submitted {
    pub(super) group: u64,
    pub(super) notes: async_mpsc::UnboundedReceiver<Note>,
}

/// The calls of an engine, with errors as texts. The tests have one that fails on demand.
trait Steps {
    fn submit(&mut self, request: Request) -> Result<u64, String>;
    fn cancel(&mut self, id: u64) -> bool;
    fn cancel_all(&mut self) -> Vec<u64>;
    fn step(&mut self) -> Result<Vec<Event>, String>;
    fn add_adapter(&mut self, adapter: &Adapter) -> Result<AdapterId, String>;
    fn unload_adapter(&mut self, id: AdapterId) -> Result<(), String>;
    fn counts(&self) -> Counts;
    fn is_idle(&self) -> bool;
    /// Whether every later call fails.
    fn is_over(&self) -> bool;
}

impl Steps for Engine {
    fn submit(&mut self, request: Request) -> Result<u64, String> {
        Engine::submit(self, request).map_err(|e| e.to_string())
    }
    fn cancel(&mut self, id: u64) -> bool {
        Engine::cancel(self, id)
    }
    fn cancel_all(&mut self) -> Vec<u64> {
        Engine::cancel_all(self)
    }
    fn step(&mut self) -> Result<Vec<Event>, String> {
        Engine::step(self).map_err(|e| e.to_string())
    }
    fn add_adapter(&mut self, adapter: &Adapter) -> Result<AdapterId, String> {
        Engine::add_adapter(self, adapter).map_err(|e| e.with_causes())
    }
    fn unload_adapter(&mut self, id: AdapterId) -> Result<(), String> {
        Engine::unload_adapter(self, id).map_err(|e| e.to_string())
    }
    fn counts(&self) -> Counts {
        Engine::counts(self)
    }
    fn is_idle(&self) -> bool {
        Engine::is_idle(self)
    }
    fn is_over(&self) -> bool {
        Engine::is_over(self)
    }
}

impl EngineHandle {
    /// Starts the thread, which opens the model; returns once it is open. `on_step` gets the rows of each batch.
    ///
    /// # Errors
    /// Those of `open`; no thread.
    pub(super) fn start(
        open: impl FnOnce() -> Result<Engine> + Send + 'static,
        on_step: impl Fn(usize) + Send + 'static,
    ) -> Result<EngineHandle> {
        let (opened, wait) = mpsc::channel();
        let (commands, taken) = mpsc::channel();
        let counts = Arc::new(Mutex::new(Counts::default()));
        let shared = Arc::clone(&counts);
        let body = move || {
            let engine = match open() {
                Ok(engine) => engine,
                Err(e) => {
                    // nobody waits any more: nothing can be done
                    let _ = opened.send(Err(e));
                    return;
                }
            };
            let facts = Facts {
                max_length: engine.max_length(),
                vocab: engine.vocab(),
                is_encoder_decoder: engine.is_encoder_decoder(),
                parameters: engine.parameters(),
                markers: engine.markers(),
            };
            publish(&shared, engine.counts());
            let _ = opened.send(Ok((facts, engine.adapter_reader().ok())));
            work(engine, &taken, &shared, on_step);
        };
        let thread = std::thread::Builder::new().name("engine".into());
        thread.spawn(body).context("no thread for the engine")?;
        let (facts, adapters) = wait
            .recv()
            .map_err(|_| anyhow!("the engine panicked while it opened the model"))??;
        Ok(EngineHandle {
            commands,
            counts,
            groups: Arc::default(),
            adapters,
            facts,
        })
    }

    /// Hands over the sequences of a request.
    pub(super) fn submit(&self, requests: Vec<Request>) -> Submitted {
        let group = self.groups.fetch_add(1, Ordering::Relaxed);
        let (sender, notes) = async_mpsc::unbounded_channel();
        let submission = Submission {
            group,
            requests,
            notes: sender,
        };
        // a thread that is gone has dropped the sender of notes, which the receiver sees
        let _ = self.commands.send(Command::Submit(submission));
        Submitted { group, notes }
    }

    /// Ends a sequence of a group, or all of them; nothing happens to those that are finished.
    pub(super) fn cancel(&self, group: u64, number: Option<usize>) {
        let _ = self.commands.send(Command::Cancel { group, number });
    }

    /// Ends all sequences, as the server ends.
    pub(super) fn end(&self) {
        // a thread that is gone has ended them
        let _ = self.commands.send(Command::End);
    }

    /// Completes when the thread has answered; false if it is gone.
    pub(super) async fn answers(&self) -> bool {
        let (sender, answer) = oneshot::channel();
        self.commands.send(Command::Ask(sender)).is_ok() && answer.await.is_ok()
    }

    /// Reads an adapter on a thread of its own, and hands it to the engine.
    ///
    /// # Errors
    /// An adapter that cannot be read or does not fit the model; the engine's refusal.
    pub(super) async fn load_adapter(&self, path: PathBuf) -> Result<AdapterId, String> {
        let Some(reader) = self.adapters.clone() else {
            return Err("the model was opened without adapters".into());
        };
        let read = move || reader.read(&path).map_err(|e| e.with_causes());
        let read = tokio::task::spawn_blocking(read).await;
        // a panic of the reader ends this request alone
        let adapter = read.map_err(|_| "the adapter could not be read".to_owned())??;
        let (sender, answer) = oneshot::channel();
        let command = Command::Add {
            adapter,
            answer: sender,
        };
        // a thread that is gone has dropped the sender, which the receiver sees
        let _ = self.commands.send(command);
        (answer.await).unwrap_or_else(|_| Err("the engine is gone".into()))
    }

    /// Unloads an adapter once no request has it.
    pub(super) fn unload_adapter(&self, id: AdapterId) {
        // a thread that is gone has no adapters
        let _ = self.commands.send(Command::Unload(id));
    }

    /// The engine's state after its last step.
    pub(super) fn counts(&self) -> Counts {
        *self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn publish(shared: &Mutex<Counts>, counts: Counts) {
    *shared.lock().unwrap_or_else(PoisonError::into_inner) = counts;
}

/// The sequence behind an engine's number.
struct Route {
    group: u64,
    number: usize,
    notes: async_mpsc::UnboundedSender<Note>,
}

/// The engine with those who wait for it.
struct Worker<E> {
    engine: E,
    routes: BTreeMap<u64, Route>,
}

/// Runs until the front is gone. A panic, and a failure after which the engine runs no more, ends the thread: the channels
/// close, so that requests fail and `/health` does.
fn work(
    engine: impl Steps,
    commands: &mpsc::Receiver<Command>,
    counts: &Mutex<Counts>,
    on_step: impl Fn(usize),
) {
    let mut worker = Worker {
        engine,
        routes: BTreeMap::new(),
    };
    let run = AssertUnwindSafe(|| {
        while !worker.engine.is_over() {
            if worker.engine.is_idle() {
                match commands.recv() {
                    Ok(command) => worker.obey(command),
                    Err(mpsc::RecvError) => return false,
                }
            }
            while let Ok(command) = commands.try_recv() {
                worker.obey(command);
            }
            if !worker.engine.is_idle() {
                worker.step(&on_step);
            }
            publish(counts, worker.engine.counts());
        }
        true
    });
    if catch_unwind(run).unwrap_or(true) {
        log!("serve: the engine runs no more; /health answers 503 from now on");
        let last = *counts.lock().unwrap_or_else(PoisonError::into_inner);
        publish(
            counts,
            Counts {
                running: 0,
                waiting: 0,
                blocks_held: 0,
                ..last
            },
        );
    }
}

impl<E: Steps> Worker<E> {
    fn obey(&mut self, command: Command) {
        match command {
            Command::Submit(submission) => self.submit(submission),
            Command::Cancel { group, number } => {
                let is_meant = |route: &Route| {
                    route.group == group && number.is_none_or(|number| route.number == number)
                };
                let engine = &mut self.engine;
                self.routes.retain(|id, route| {
                    let ends = is_meant(route);
                    if ends {
                        engine.cancel(*id);
                    }
                    !ends
                });
            }
            Command::End => {
                self.engine.cancel_all();
                for route in std::mem::take(&mut self.routes).into_values() {
                    route.send(Progress::Ended);
                }
            }
            Command::Ask(answer) => {
                // the one who asked may have left
                let _ = answer.send(());
            }
            Command::Add { adapter, answer } => {
                let added = self.engine.add_adapter(&adapter);
                if let Err(Ok(id)) = answer.send(added) {
                    // the one who asked has left
                    self.unload(id);
                }
            }
            Command::Unload(id) => self.unload(id),
        }
    }

    fn unload(&mut self, id: AdapterId) {
        if let Err(e) = self.engine.unload_adapter(id) {
            log!("serve: an adapter was not unloaded: {e}");
        }
    }

    fn submit(&mut self, submission: Submission) {
        let Submission {
            group,
            requests,
            notes,
        } = submission;
        for (number, request) in requests.into_iter().enumerate() {
            let route = Route {
                group,
                number,
                notes: notes.clone(),
            };
            match self.engine.submit(request) {
                Ok(id) => {
                    self.routes.insert(id, route);
                }
                Err(e) => {
                    route.send(Progress::Refused(e));
                }
            }
        }
    }

    fn step(&mut self, on_step: &impl Fn(usize)) {
        match self.engine.step() {
            Ok(events) => {
                on_step(self.engine.counts().batch_rows);
                events.into_iter().for_each(|event| self.report(event));
            }
            Err(e) => {
                log!("serve: a step failed: {e}");
                self.engine.cancel_all();
                for route in std::mem::take(&mut self.routes).into_values() {
                    route.send(Progress::Failed(e.clone()));
                }
            }
        }
    }

    fn report(&mut self, event: Event) {
        let (id, progress) = match event {
            Event::Started { id } => (id, Progress::Started),
            Event::Prompt { id, scores, cached } => (id, Progress::Prompt { scores, cached }),
            Event::Token { id, token, scored } => (id, Progress::Token { token, scored }),
            Event::Finished { id, finish } => (id, Progress::Finished(finish)),
        };
        let is_last = matches!(progress, Progress::Finished(_));
        let Some(route) = self.routes.get(&id) else {
            return;
        };
        let is_heard = route.send(progress);
        if is_last || !is_heard {
            self.routes.remove(&id);
        }
        if !is_last && !is_heard {
            self.engine.cancel(id);
        }
    }
}

impl Route {
    /// False if nobody waits any more.
    fn send(&self, progress: Progress) -> bool {
        let note = Note {
            number: self.number,
            at: Instant::now(),
            progress,
        };
        self.notes.send(note).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use train::infer::GenerateOptions;

    /// An engine of which prompts ask for what they are: 1 panics, 2 fails a step, 4 fails for good, 5 never ends, others give one token.
    #[derive(Default)]
    struct Fake {
        requests: Vec<(u64, u32)>,
        next: u64,
        is_over: bool,
    }

    impl Steps for Fake {
        fn submit(&mut self, request: Request) -> Result<u64, String> {
            request.options.check().map_err(|e| e.to_string())?;
            self.next += 1;
            self.requests.push((self.next, request.prompt[0]));
            Ok(self.next)
        }
        fn cancel(&mut self, id: u64) -> bool {
            let before = self.requests.len();
            self.requests.retain(|(other, _)| *other != id);
            self.requests.len() < before
        }
        fn cancel_all(&mut self) -> Vec<u64> {
            self.requests.drain(..).map(|(id, _)| id).collect()
        }
        fn step(&mut self) -> Result<Vec<Event>, String> {
            if self.requests.iter().any(|(_, kind)| *kind == 1) {
                panic!("asked for");
            }
            if self.requests.iter().any(|(_, kind)| *kind == 2) {
                let bad = GenerateOptions {
                    top_p: 7.0,
                    ..GenerateOptions::greedy(1)
                };
                bad.check().map_err(|e| e.to_string())?;
            }
            if self.requests.iter().any(|(_, kind)| *kind == 4) {
                self.is_over = true;
                return Err("a rank is gone".into());
            }
            let (token, scored) = (5, None);
            if let Some((id, _)) = self.requests.iter().find(|(_, kind)| *kind == 5) {
                let id = *id;
                // nobody reads the tokens: as fast as possible, they would fill the memory
                std::thread::sleep(std::time::Duration::from_millis(1));
                return Ok(vec![Event::Token { id, token, scored }]);
            }
            let (id, _) = self.requests.remove(0);
            Ok(vec![
                Event::Token { id, token, scored },
                Event::Finished {
                    id,
                    finish: Finish::Length,
                },
            ])
        }
        fn add_adapter(&mut self, _: &Adapter) -> Result<AdapterId, String> {
            Err("none here".into())
        }
        fn unload_adapter(&mut self, _: AdapterId) -> Result<(), String> {
            Ok(())
        }
        fn counts(&self) -> Counts {
            Counts {
                running: self.requests.len(),
                ..Counts::default()
            }
        }
        fn is_idle(&self) -> bool {
            self.requests.is_empty()
        }
        fn is_over(&self) -> bool {
            self.is_over
        }
    }

    fn start() -> EngineHandle {
        let (commands, taken) = mpsc::channel();
        let counts = Arc::new(Mutex::new(Counts::default()));
        let shared = Arc::clone(&counts);
        std::thread::spawn(move || work(Fake::default(), &taken, &shared, |_| {}));
        let facts = Facts {
            max_length: 8,
            vocab: 8,
            is_encoder_decoder: false,
            parameters: 1,
            markers: Vec::new(),
        };
        EngineHandle {
            commands,
            counts,
            groups: Arc::default(),
            adapters: None,
            facts,
        }
    }

    fn asking(kind: u32) -> Request {
        Request {
            prompt: vec![kind],
            options: GenerateOptions::greedy(2),
            beginning: Vec::new(),
            slides: false,
            adapter: None,
        }
    }

    fn last(mut submitted: Submitted) -> Option<Progress> {
        let mut last = None;
        while let Some(note) = submitted.notes.blocking_recv() {
            last = Some(note.progress);
        }
        last
    }

    fn health(engine: &EngineHandle) -> bool {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        runtime.block_on(engine.answers())
    }

    #[test]
    fn a_failed_step_fails_its_requests_and_the_thread_goes_on() {
        let engine = start();
        assert!(matches!(
            last(engine.submit(vec![asking(2)])),
            Some(Progress::Failed(_))
        ));
        let done = last(engine.submit(vec![asking(3)]));
        assert!(matches!(done, Some(Progress::Finished(Finish::Length))));
        assert!(health(&engine));
    }

    #[test]
    fn requests_in_progress_are_told_that_the_server_ends() {
        let engine = start();
        let mut submitted = engine.submit(vec![asking(5)]);
        let first = submitted.notes.blocking_recv().unwrap();
        assert!(matches!(first.progress, Progress::Token { .. }));
        engine.end();
        assert!(matches!(last(submitted), Some(Progress::Ended)));
        assert!(health(&engine));
    }

    #[test]
    fn a_refused_request_is_told_why_and_the_others_of_its_group_go_on() {
        let engine = start();
        let mut wrong = asking(3);
        wrong.options.top_p = 2.0;
        let mut submitted = engine.submit(vec![wrong, asking(3)]);
        let first = submitted.notes.blocking_recv().unwrap();
        assert!(matches!(first.progress, Progress::Refused(why) if why.contains("top_p")));
        assert!(matches!(last(submitted), Some(Progress::Finished(_))));
    }

    #[test]
    fn a_panic_and_an_engine_that_is_over_close_the_channels() {
        for kind in [1, 4] {
            let engine = start();
            assert!(health(&engine));
            let found = last(engine.submit(vec![asking(kind)]));
            assert_eq!(matches!(found, Some(Progress::Failed(_))), kind == 4);
            assert_eq!(found.is_none(), kind == 1);
            assert!(!health(&engine));
            assert!(last(engine.submit(vec![asking(3)])).is_none());
        }
    }
}
