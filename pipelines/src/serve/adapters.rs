//! Adapters that clients ask for by name, as vLLM serves them: `--adapter` at the start, and two routes while the server runs.

use super::error::ApiError;
use super::fields::Fields;
use super::openai::Call;
use super::state::Server;
use super::texts::internal;
use anyhow::{Result, bail};
use axum::http::StatusCode;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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
    id: AdapterId,
    pub(super) path: PathBuf,
}

/// All that are loaded, by name.
pub(super) struct Adapters {
    loaded: Mutex<BTreeMap<String, Adapter>>,
    /// One adapter is loaded or unloaded at a time.
    changes: tokio::sync::Mutex<()>,
    /// Whether clients may load and unload them.
    by_clients: bool,
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

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Adapter>> {
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

impl Server {
    /// Loads an adapter under a name of its own.
    ///
    /// # Errors
    /// 400: a name that is taken, an adapter that does not fit the model, as many adapters as may be loaded.
    pub(super) async fn load(&self, named: NamedAdapter) -> Result<(), ApiError> {
        let NamedAdapter { name, path } = named;
        let _alone = self.adapters.changes.lock().await;
        if name == self.name || self.adapters.lock().contains_key(&name) {
            let message = format!("The lora adapter '{name}' has already been loaded.");
            return Err(ApiError::field("lora_name", message));
        }
        let loaded = self.engine.load_adapter(path.clone()).await;
        let id = loaded.map_err(|why| ApiError::field("lora_path", why))?;
        self.adapters.lock().insert(name, Adapter { id, path });
        Ok(())
    }

    /// Forgets an adapter; requests that have it finish.
    ///
    /// # Errors
    /// 404 if there is none of this name.
    async fn unload(&self, name: &str) -> Result<(), ApiError> {
        let _alone = self.adapters.changes.lock().await;
        let Some(adapter) = self.adapters.lock().remove(name) else {
            let message = format!("The lora adapter '{name}' cannot be found.");
            return Err(ApiError::new(StatusCode::NOT_FOUND, message));
        };
        self.engine.unload_adapter(adapter.id);
        Ok(())
    }
}

/// Loads the adapters of the command line.
///
/// # Errors
/// The first that cannot be loaded.
pub(super) async fn load_all(server: &Server, adapters: &[NamedAdapter]) -> Result<()> {
    for adapter in adapters {
        if let Err(e) = server.load(adapter.clone()).await {
            let (name, path) = (&adapter.name, adapter.path.display());
            bail!("--adapter {name}={path}: {}", e.message);
        }
    }
    Ok(())
}

fn required(fields: &Fields, name: &str) -> Result<String, ApiError> {
    let found: Option<String> = fields.get(name)?;
    let found = found.filter(|text| !text.trim().is_empty());
    found.ok_or_else(|| ApiError::field(name, format!("{name}: is required")))
}

fn expect_allowed(server: &Server) -> Result<(), ApiError> {
    if server.adapters.by_clients {
        return Ok(());
    }
    let message = "clients load and unload adapters with --allow-adapter-loading alone";
    Err(ApiError::new(StatusCode::FORBIDDEN, message))
}

/// The fields of a call that asks for a change. A page of another site can send a text to a server on this machine, but no JSON.
fn fields_of(call: &Call) -> Result<Fields, ApiError> {
    expect_allowed(&call.server)?;
    if !call.is_json() {
        let message = "want the header Content-Type: application/json";
        return Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message));
    }
    call.fields()
}

/// `POST /v1/load_lora_adapter`: `lora_name`, `lora_path` on this machine.
pub(super) async fn load(call: Call) -> Result<String, ApiError> {
    let fields = fields_of(&call)?;
    let (name, path) = (
        required(&fields, "lora_name")?,
        required(&fields, "lora_path")?,
    );
    let named = NamedAdapter {
        name: name.clone(),
        path: path.into(),
    };
    // a client that leaves does not stop it half way
    let server = Arc::clone(&call.server);
    let loading = tokio::spawn(async move { server.load(named).await });
    loading.await.map_err(|e| internal(&e.into()))??;
    Ok(format!(
        "Success: LoRA adapter '{name}' added successfully."
    ))
}

/// `POST /v1/unload_lora_adapter`: `lora_name`.
pub(super) async fn unload(call: Call) -> Result<String, ApiError> {
    let name = required(&fields_of(&call)?, "lora_name")?;
    call.server.unload(&name).await?;
    Ok(format!(
        "Success: LoRA adapter '{name}' removed successfully."
    ))
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
