"""Start the server of the user interface, print its address, and open a browser."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
import threading
import warnings
import webbrowser
from collections.abc import Sequence
from contextlib import suppress

from tenterhook.errors import StoreError
from tenterhook.view.app_files import app_file

HOST = "127.0.0.1"


def serve(paths: Sequence[str | os.PathLike[str]], *, port: int = 0, browser: bool = True) -> None:
    """Serve runs to browsers on this machine until the program is interrupted.

    Args:
        paths: Run folders, or folders that contain run folders.
        port: The port, or 0 for any free port.
        browser: If True, open the page in a browser.

    Raises:
        StoreError: A path is a file or cannot be read, the port is in use, or the packages of the extra `view` are
            missing.
    """
    try:
        import uvicorn

        from tenterhook.view.server.routes import make_app
    except ModuleNotFoundError as error:
        raise StoreError(
            f"{error.name} is not installed, which the server needs", remedy="run pip install 'tenterhook[view]'"
        ) from error
    from tenterhook.record import no_run_in
    from tenterhook.view.server.library import Library

    # A number that is too large for float32 is drawn as not finite.
    warnings.filterwarnings("ignore", "overflow encountered in cast", RuntimeWarning)
    library = Library(paths)
    empty = not library.folders()
    app_file("index.html")
    with suppress(KeyboardInterrupt), _listen(port) as listener:  # Ctrl-C ends the server
        port = listener.getsockname()[1]
        token = secrets.token_urlsafe(24)
        address = f"http://{HOST}:{port}/{token}/"
        config = uvicorn.Config(
            make_app(library, token, port),
            log_level="critical",  # a connection that closes early is not an error
            access_log=False,
            server_header=False,
            proxy_headers=False,  # no proxy is in front of this server, so a request cannot say where it comes from
            timeout_graceful_shutdown=1,
            ws="none",
        )
        # uvicorn leaves the errors of connections that break to asyncio, which would print them.
        logging.getLogger("asyncio").setLevel(logging.CRITICAL)
        print(f"tenterhook view: {address}", flush=True)
        for path in paths if empty else ():
            nothing = no_run_in(str(path), "start a training that writes to it; the page shows its run")
            print(f"tenterhook view: {nothing}", flush=True)
        threading.Thread(target=library.open_newest, name="tenterhook: open a run", daemon=True).start()
        if browser:
            threading.Timer(0.3, webbrowser.open, (address,)).start()
        serving = uvicorn.Server(config).serve(sockets=[listener])
        try:
            asyncio.run(serving)
        finally:
            serving.close()  # Ctrl-C may come before it has begun, and Python would warn that nothing awaited it


def _listen(port: int) -> socket.socket:
    """Listen on a port of the loopback interface."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((HOST, port))
        listener.listen(128)
    except OSError as error:
        listener.close()
        raise StoreError(
            f"port {port} cannot be used: {error.strerror}", remedy="choose another port, or leave out --port"
        ) from error
    return listener
