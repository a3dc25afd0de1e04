//! Adapters that clients ask for by name: `--adapter`, and those that are loaded while the server runs (`adapter_routes`).

use super::error::ApiError;
use super::fields::Fields;
use axum::http::StatusCode;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use train::infer::engine::AdapterId;

/// A value of `--adapter`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NamedAdapter {
    pub(super) name: String,
    pub(super) path: PathBuf,
}

impl FromStr for NamedAdapter {
    type Err = String;

    fn from_str(text: &str) -> Result<NamedAdapter, String> {
        match text.split_once('=') {
            Some((name, path)) if !name.trim().is_empty() && !path.is_empty() => Ok(NamedAdapter {
                name: name.trim().to_owned(),
                path: path.into(),
            }),
            _ => Err("want NAME=PATH".into()),
        }
    }
}

/// A loaded adapter.
#[derive(Clone, Debug)]
pub(super) struct Adapter {
    pub(super) id: AdapterId,
    pub(super) path: PathBuf,
}

/// All that are loaded, by name.
pub(super) struct Adapters {
    loaded: Mutex<BTreeMap<String, Adapter>>,
    /// One adapter is loaded or unloaded at a time.
    pub(super) changes: tokio::sync::Mutex<()>,
    /// Whether clients may load and unload them.
    pub(super) by_clients: bool,
}

/// The model that a request asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AskedModel {
    pub(super) name: String,
    pub(super) adapter: Option<AdapterId>,
}

impl Adapters {
    pub(super) fn new(by_clients: bool) -> Adapters {
        Adapters {
            loaded: Mutex::default(),
            changes: tokio::sync::Mutex::default(),
            by_clients,
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Adapter>> {
        // the map is whole between two calls
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All of them, by name.
    pub(super) fn list(&self) -> BTreeMap<String, Adapter> {
        self.lock().clone()
    }

    /// The model of a request; one without a name means the model that is served.
    ///
    /// # Errors
    /// 404 for another name, as vLLM words it.
    pub(super) fn asked(&self, fields: &Fields, model: &str) -> Result<AskedModel, ApiError> {
        let name = fields.get::<String>("model")?;
        let name = name.unwrap_or_else(|| model.to_owned());
        if name == model {
            let adapter = None;
            return Ok(AskedModel { name, adapter });
        }
        let found = self.lock().get(&name).map(|adapter| adapter.id);
        let Some(id) = found else {
            return Err(ApiError {
                param: Some("model".into()),
                ..ApiError::new(
                    StatusCode::NOT_FOUND,
                    format!("The model `{name}` does not exist."),
                )
            });
        };
        let adapter = Some(id);
        Ok(AskedModel { name, adapter })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_without_a_name_means_the_model_and_an_unknown_name_is_404() {
        let adapters = Adapters::new(false);
        let fields = |body: &str| Fields::parse(body.as_bytes()).unwrap();
        for body in [r#"{"model": "a"}"#, "{}"] {
            let asked = adapters.asked(&fields(body), "a").unwrap();
            assert_eq!((asked.name.as_str(), asked.adapter), ("a", None));
        }
        let unknown = adapters.asked(&fields(r#"{"model": "b"}"#), "a");
        let unknown = unknown.unwrap_err();
        assert_eq!(unknown.status, 404);
        assert_eq!(unknown.message, "The model `b` does not exist.");
        assert_eq!(unknown.param.as_deref(), Some("model"));
    }

    #[test]
    fn an_adapter_is_a_name_and_a_path() {
        let read = NamedAdapter::from_str;
        let found = read("sql=/a=b").unwrap();
        assert_eq!((found.name.as_str(), found.path), ("sql", "/a=b".into()));
        for wrong in ["", "sql", "=x", " =x", "sql="] {
            assert!(read(wrong).is_err(), "{wrong:?}");
        }
    }
}
