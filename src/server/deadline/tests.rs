use super::*;

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::time::advance;

struct Pair {
    server: Deadline<DuplexStream>,
    client: DuplexStream,
    turns: Turns,
}

fn pair() -> Pair {
    let (server, client) = duplex(64);
    let turns = Turns::default();
    Pair { server: Deadline::new(server, turns.clone()), client, turns }
}

/// Reads until the stream fails, and tells when it did.
async fn time_of_failure(server: &mut Deadline<DuplexStream>) -> (io::ErrorKind, Duration) {
    let began = Instant::now();
    let mut bytes = [0; 16];
    loop {
        match server.read(&mut bytes).await {
            Ok(0) => return (io::ErrorKind::UnexpectedEof, began.elapsed()),
            Ok(_) => {}
            Err(error) => return (error.kind(), began.elapsed()),
        }
    }
}

fn about(found: Duration, expected: Duration) -> bool {
    found >= expected && found < expected + Duration::from_millis(10)
}

#[tokio::test(start_paused = true)]
async fn a_silent_connection_lasts_as_long_as_the_idle_limit() {
    let mut pair = pair();
    let (kind, after) = time_of_failure(&mut pair.server).await;
    assert_eq!(kind, io::ErrorKind::TimedOut);
    assert!(about(after, IDLE), "{after:?}");
}

#[tokio::test(start_paused = true)]
async fn a_dripped_head_is_cut_off_five_seconds_after_its_first_byte() {
    let Pair { mut server, mut client, turns: _turns } = pair();
    let drip = async {
        sleep(Duration::from_secs(60)).await;
        while client.write_all(b"G").await.is_ok() {
            sleep(Duration::from_secs(1)).await;
        }
    };
    let (kind, after) = tokio::select! {
        failed = time_of_failure(&mut server) => failed,
        () = drip => unreachable!("the client never gives up"),
    };
    assert_eq!(kind, io::ErrorKind::TimedOut);
    assert!(about(after, Duration::from_secs(60) + HEAD), "{after:?}");
}

#[tokio::test(start_paused = true)]
async fn a_request_being_answered_has_no_deadline_here_and_the_pause_after_it_is_a_full_one() {
    let Pair { mut server, mut client, turns } = pair();
    client.write_all(b"POST").await.unwrap();
    server.read_exact(&mut [0; 4]).await.unwrap();
    let turn = turns.begin();
    let mut byte = [0; 1];
    tokio::select! {
        biased;
        _ = server.read(&mut byte) => panic!("nothing was sent"),
        () = sleep(IDLE * 2) => {}
    }
    drop(turn);
    let (kind, after) = time_of_failure(&mut server).await;
    assert_eq!(kind, io::ErrorKind::TimedOut);
    assert!(about(after, IDLE), "{after:?}");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_passed_unseen_still_renews_the_pause() {
    let mut pair = pair();
    advance(IDLE / 2).await;
    drop(pair.turns.begin());
    let (_, after) = time_of_failure(&mut pair.server).await;
    assert!(about(after, IDLE), "{after:?}");
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_nobody_reads_ends_the_connection() {
    let mut pair = pair();
    let began = Instant::now();
    let error = pair.server.write_all(&[0; 128]).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    assert!(about(began.elapsed(), IDLE));
}

#[tokio::test(start_paused = true)]
async fn the_close_waits_for_the_caller_but_not_for_long() {
    let Pair { mut server, client, turns: _turns } = pair();
    let began = Instant::now();
    server.shutdown().await.unwrap();
    assert!(about(began.elapsed(), LINGER), "the caller stays");
    drop(client);

    let Pair { mut server, mut client, turns: _turns } = pair();
    let began = Instant::now();
    let send_and_go = async move { client.write_all(&[0; 4096]).await };
    let (closed, sent) = tokio::join!(server.shutdown(), send_and_go);
    closed.unwrap();
    sent.unwrap();
    assert!(about(began.elapsed(), Duration::ZERO), "the caller goes");
}
