//! Loading and unloading of adapters: those of the command line, and by clients, as vLLM serves it.

use super::adapters::{Adapter, NamedAdapter};
use super::error::ApiError;
use super::fields::Fields;
use super::openai::Call;
use super::state::Server;
use super::texts::internal;
use anyhow::bail;
use axum::http::StatusCode;
use std::sync::Arc;

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
        let model = &self.files.path;
        if let Ok(Some(base)) = train::checkpoint::other_base(&path, model) {
            log!(
                "serve: the adapter {name} of {} was made for {base}, and {} is served: it fits that model's weights alone, however they are stored",
                path.display(),
                model.display()
            );
        }
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
pub(super) async fn load_all(server: &Server, adapters: &[NamedAdapter]) -> anyhow::Result<()> {
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
