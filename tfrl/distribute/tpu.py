"""Start-up of a TPU."""

from tfrl.distribute import _tpu_resolver


def tf_init_tpu(worker: str = "", protocol: str | None = None) -> str:
    """Connects to a TPU and initialises it, once, before anything is computed.

    A TPU of this host (Colab, a TPU VM) is `'local'`, or `''` unless one of the
    variables KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS, TPU_NAME and TPU_CONFIG names another,
    as Google Cloud sets them. A remote TPU is the name of a Cloud TPU or
    `grpc://host:port` (port 8470 unless given); it is asked for an answer before
    TensorFlow, which would wait for minutes, connects.

    Where no TPU is, the error comes within seconds. A repeated call empties a TPU:
    what lay on it is lost. tfrl has been tried on stand-ins for a TPU only.

    Args:
        worker: which TPU: `''`, `'local'`, a name or an address.
        protocol: to speak with a remote TPU; 'grpc' by default.

    Returns:
        Device name of the CPU beside the TPU: `''` on this host, else `'/job:worker'`.

    Raises:
        ValueError: if there is no TPU, with where it was looked for, and what it
            takes to get one.
        TypeError: if an argument is no string.

    Example:
        >>> tf_init_tpu("grpc://localhost:1")
        Traceback (most recent call last):
        ...
        ValueError: `tf_init_tpu`: `worker` expected a TPU; got 'grpc://localhost:1',
        but looked at grpc://localhost:1 and found none (ConnectionError: localhost:1
        does not answer ...); TPUs need the wheel tensorflow-tpu, at most 2.20 ...
    """
    _, is_local = _tpu_resolver.connect("tf_init_tpu", worker, protocol)
    return "" if is_local else "/job:worker"
