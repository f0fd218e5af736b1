//! How does a server hang up in the middle? In: an accepted connection. Out: the same one, with a handle that makes
//! every later write fail, so that the client sees a reset instead of an answer.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use axum::extract::connect_info::Connected;
use axum::http::StatusCode;
use axum::response::Response;
use axum::serve::IncomingStream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};

use super::plain;

/// Handle by which a handler closes the connection that it serves.
#[derive(Clone, Debug)]
pub(super) struct Cut(Arc<AtomicBool>);

impl Cut {
    pub(super) fn now(&self) -> Response {
        self.0.store(true, Ordering::SeqCst);
        // Never reaches the client: the first write on the connection fails.
        plain(StatusCode::OK, "cut")
    }
}

impl Connected<IncomingStream<'_, CuttableListener>> for Cut {
    fn connect_info(stream: IncomingStream<'_, CuttableListener>) -> Self {
        stream.remote_addr().clone()
    }
}

pub(super) struct CuttableListener(pub(super) TcpListener);

impl axum::serve::Listener for CuttableListener {
    type Io = CuttableStream;
    type Addr = Cut;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            match self.0.accept().await {
                Ok((stream, _)) => {
                    let cut = Cut(Arc::new(AtomicBool::new(false)));
                    return (CuttableStream { stream, cut: cut.clone() }, cut);
                }
                Err(_) => tokio::task::yield_now().await,
            }
        }
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        Ok(Cut(Arc::new(AtomicBool::new(false))))
    }
}

pub(super) struct CuttableStream {
    stream: TcpStream,
    cut: Cut,
}

impl AsyncRead for CuttableStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for CuttableStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if self.cut.0.load(Ordering::SeqCst) {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
