"""Callbacks that send the rows of a run to Weights & Biases, or to MLflow.

    Trainer.callbacks = [@WandbLogger()]
    WandbLogger.project = "pendulum"

The libraries are extras, and imported when training begins.
"""

import hashlib
import math
import pathlib
import time
import uuid
import warnings
import weakref
from collections.abc import Callable, Mapping
from typing import Any

import keras

from tfrl._internal import arguments, durable


class _RunLogger(keras.callbacks.Callback):
    """Sends hyper-parameters when training begins, then each row that is written.

    What fails before the first step is an error; what fails later ends no training. Of
    what other callbacks add to a row, numbers are sent.
    """

    _is_open = False

    def __init__(self) -> None:
        super().__init__()
        # Names of what is no number, of which a warning has told.
        self._left_out: set[str] = set()

    def on_train_begin(self, logs: Any = None) -> None:
        del logs
        if self._is_chief:
            folder = getattr(self.model, "directory", None)
            record = getattr(self.model, "record", None)
            known = {} if record is None else record.hyperparameters
            try:
                self._open(None if folder is None else pathlib.Path(folder), known)
            except ImportError:
                raise
            except Exception as error:
                raise OSError(
                    f"`{type(self).__name__}`: expected a tracker that takes the run; "
                    f"got {_told(error)}; fix it, or train without this callback"
                ) from error
            self._is_open = True

    def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        if not self._is_open:
            return
        row = self._numbers(logs or {})
        if row:
            step = getattr(self.model, "env_steps", None)
            self._try(self._log, row, int(epoch if step is None else step))

    def on_train_end(self, logs: Any = None) -> None:
        del logs
        self._try(self._close)
        self._is_open = False

    def _numbers(self, logs: Mapping[str, Any]) -> dict[str, float]:
        """Returns the finite numbers; of what is none a warning tells once."""
        row = {}
        for key, value in logs.items():
            try:
                if math.isfinite(value):
                    row[key] = float(value)
            except (TypeError, ValueError, OverflowError):
                if key not in self._left_out:
                    self._left_out.add(key)
                    warnings.warn(
                        f"`{type(self).__name__}`: `logs` expected numbers; got "
                        f"{type(value).__name__} for {key!r}, which is not sent",
                        stacklevel=3,
                    )
        return row

    def _try(self, send: Callable[..., None], *what: Any) -> None:
        """Sends, unless that failed before; a failure is told once."""
        if not self._is_open:
            return
        try:
            send(*what)
        except Exception as error:
            self._is_open = False
            warnings.warn(
                f"`{type(self).__name__}`: expected a tracker that takes rows to the "
                f"end; got {_told(error)}; nothing more is sent, the training goes on",
                stacklevel=3,
            )

    @property
    def _is_chief(self) -> bool:
        return bool(getattr(self.model, "is_chief", True))

    def _open(self, folder: pathlib.Path | None, known: dict[str, Any]) -> None:
        raise NotImplementedError

    def _log(self, row: dict[str, float], step: int) -> None:
        raise NotImplementedError

    def _close(self) -> None:
        raise NotImplementedError


class WandbLogger(_RunLogger):
    """Sends a run to Weights & Biases (extra `tfrl[wandb]`).

    Its steps are the environment steps, its config the hyper-parameters; its files are
    in the folder of the run. A resumed run keeps the same id. Rows logged after the
    checkpoint that a run resumes from appear twice.

    Args:
        project: of the dashboard; None for the one in the environment variables.
        name: of the run; None for that of its folder.
        group: of runs, such as the seeds of one configuration.
        mode: "online", "offline" (sent later, by `wandb sync`) or "disabled"; None for
            `WANDB_MODE`, or "online".

    Raises:
        ImportError: when training begins, if the library is missing.
        OSError: likewise, if the tracker rejects the run. If it fails later, a warning
            reports that, and training continues without it.

    Example:
        >>> WandbLogger("pendulum", mode="offline").project
        'pendulum'
    """

    # Those that have a run now: wandb would give it to the next one as well.
    _active: weakref.WeakSet["WandbLogger"] = weakref.WeakSet()

    def __init__(
        self,
        project: str | None = None,
        name: str | None = None,
        group: str | None = None,
        mode: str | None = None,
    ) -> None:
        super().__init__()
        if mode is not None:
            modes = ("online", "offline", "disabled")
            arguments.check_one_of("WandbLogger", "mode", mode, modes)
        self.project, self.name, self.group, self.mode = project, name, group, mode
        self._run: Any = None

    def _open(self, folder: pathlib.Path | None, known: dict[str, Any]) -> None:
        wandb = arguments.imported("WandbLogger", "wandb", "wandb", "wandb")
        identity = None
        if folder is not None:
            path = _file_of(folder / "wandb_run_id", self.project)
            identity = _kept(path, lambda: uuid.uuid4().hex[:8])
        is_second = any(each._is_open for each in self._active)
        self._run = wandb.init(
            project=self.project,
            name=self.name or (None if folder is None else folder.name),
            group=self.group,
            mode=self.mode,
            id=identity,
            dir=folder,
            resume=None if identity is None else "allow",
            config=known,
            **({"reinit": "create_new"} if is_second else {}),
        )
        self._active.add(self)

    def _log(self, row: dict[str, float], step: int) -> None:
        self._run.log({**row, "env_steps": step}, step=step)

    def _close(self) -> None:
        self._active.discard(self)
        self._run.finish()


class MlflowLogger(_RunLogger):
    """Sends a run to MLflow (extra `tfrl[mlflow]`): to a server, or into a folder.

    Its steps are the environment steps, its parameters the hyper-parameters. A resumed
    run continues the same MLflow run, with changed hyper-parameters in tags such as
    `override/total_env_steps`. Rows logged after the checkpoint that a run resumes from
    appear twice.

    Args:
        experiment: its name; created if missing.
        name: of the run; None for that of its folder.
        tracking_uri: of the server, such as "http://localhost:5000"; None for
            `MLFLOW_TRACKING_URI`, or MLflow's default. A database, as
            "sqlite:///runs.db", takes the whole package `mlflow`; a folder, since
            MLflow 3, `MLFLOW_ALLOW_FILE_STORE=true` in the environment.

    Raises:
        ImportError: when training begins, if the library is missing.
        OSError: likewise, if the tracker rejects the run. If it fails later, a warning
            reports that, and training continues without it.

    Example:
        >>> MlflowLogger("pendulum", tracking_uri="http://localhost:5000").experiment
        'pendulum'
    """

    def __init__(
        self,
        experiment: str = "Default",
        name: str | None = None,
        tracking_uri: str | None = None,
    ) -> None:
        super().__init__()
        self.experiment, self.name, self.tracking_uri = experiment, name, tracking_uri
        self._client: Any = None
        self._entities: Any = None
        self._identity = ""

    def _open(self, folder: pathlib.Path | None, known: dict[str, Any]) -> None:
        needed = "MlflowLogger", "mlflow-skinny", "mlflow"
        where, library, extra = needed
        mlflow = arguments.imported(where, "mlflow", library, extra)
        self._entities = arguments.imported(where, "mlflow.entities", library, extra)
        self._client = client = mlflow.MlflowClient(tracking_uri=self.tracking_uri)
        found = client.get_experiment_by_name(self.experiment)
        of = client.create_experiment(self.experiment) if found is None else None
        of = found.experiment_id if of is None else of
        name = self.name or (None if folder is None else folder.name)

        def create() -> str:
            return str(client.create_run(of, run_name=name).info.run_id)

        if folder is None:
            self._identity = create()
        else:
            whose = self.experiment, self.tracking_uri
            self._identity = _kept(_file_of(folder / "mlflow_run_id", *whose), create)
        client.update_run(self._identity, status="RUNNING")
        entities, told = self._entities, {k: str(x) for k, x in known.items()}
        # A parameter keeps its first value; a tag has what it is in a resumed run.
        data = client.get_run(self._identity).data
        newest = {k: data.tags.get(f"override/{k}", x) for k, x in data.params.items()}
        client.log_batch(
            self._identity,
            params=[entities.Param(k, x) for k, x in told.items() if k not in newest],
            tags=[
                entities.RunTag(f"override/{k}", x)
                for k, x in told.items()
                if newest.get(k, x) != x
            ],
        )

    def _log(self, row: dict[str, float], step: int) -> None:
        now = int(time.time() * 1000)
        metrics = [self._entities.Metric(k, x, now, step) for k, x in row.items()]
        self._client.log_batch(self._identity, metrics=metrics)

    def _close(self) -> None:
        self._client.set_terminated(self._identity)


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def _file_of(path: pathlib.Path, *whose: str | None) -> pathlib.Path:
    """Returns where one logger of several keeps its identity.

    The file of a run of before, with nobody's name, goes to who asks first.
    """
    digest = hashlib.sha256(repr(whose).encode()).hexdigest()[:8]
    own = path.with_name(f"{path.name}-{digest}")
    if path.is_file() and not own.exists():
        path.replace(own)
    return own


def _kept(path: pathlib.Path, make: Any) -> str:
    """Returns the text of a file, which is made if it is missing or empty."""
    text = path.read_text("utf-8").strip() if path.is_file() else ""
    if not text:
        text = make()
        durable.replace_file(path, text.encode())
    return text
