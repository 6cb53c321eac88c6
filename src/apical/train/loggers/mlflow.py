"""MLflow: one run for a trial, with the spec as its parameters.

MLFLOW_TRACKING_URI (a server, a database or a folder) and MLFLOW_EXPERIMENT_NAME decide where it goes, as everywhere.
"""

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from apical import files, imports
from apical.train.loop import Callback, Event, scalars
from apical.train.spec import TrialSpec

EXPERIMENT = "apical"


@contextmanager
def log(spec: TrialSpec, folder: Path) -> Iterator[Callback]:
    """A callback that writes the scalars of each epoch; a trial that is continued continues its run."""
    mlflow = imports.optional("mlflow", extra="mlflow")
    client, entities = mlflow.MlflowClient(), mlflow.entities
    stored = folder / "mlflow-run.txt"
    if stored.is_file():
        run = files.read_text(stored, limit=4096).strip()
        client.update_run(run, status="RUNNING")
    else:
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", EXPERIMENT)
        experiment = client.get_experiment_by_name(name)
        number = experiment.experiment_id if experiment else client.create_experiment(name)
        run = client.create_run(number, run_name=spec.name).info.run_id
        texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in spec.as_dict().items()}
        client.log_batch(run, params=[entities.Param(key, text) for key, text in texts.items()])
        files.write(stored, run.encode())

    def write(event: Event) -> None:
        if event.record is not None:
            now = int(1000 * time.time())
            values = scalars(event.record).items()
            client.log_batch(run, metrics=[entities.Metric(name, value, now, event.epoch) for name, value in values])

    ended = "FAILED"
    try:
        yield write
        ended = "FINISHED"
    finally:
        client.set_terminated(run, ended)
