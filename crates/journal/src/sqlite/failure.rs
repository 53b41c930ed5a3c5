//! What SQLite's errors mean to a caller of the journal.

use rusqlite::{Error as Sql, ErrorCode, ffi};

use crate::Error;

/// The meaning of an error after which nothing of the transaction is in the file.
pub(super) fn before_commit(error: &Sql, place: &str) -> Error {
    let reason = error.to_string();
    match error {
        Sql::SqliteFailure(failure, _) => match failure.code {
            ErrorCode::DiskFull => Error::Full { reason },
            ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => Error::Corrupt { place: place.into(), reason },
            // The one constraint that an append can run into is a frame that stands where none can be.
            ErrorCode::ConstraintViolation | ErrorCode::TypeMismatch => Error::Corrupt { place: place.into(), reason },
            // The index of the write-ahead log is a file too, and grows by being extended.
            ErrorCode::SystemIoFailure if failure.extended_code == ffi::SQLITE_IOERR_SHMSIZE => Error::Full { reason },
            _ => Error::Unavailable { reason },
        },
        // A value that is not of the type that was written.
        Sql::FromSqlConversionFailure(..)
        | Sql::IntegralValueOutOfRange(..)
        | Sql::InvalidColumnType(..)
        | Sql::Utf8Error(..) => Error::Corrupt { place: place.into(), reason },
        _ => Error::Unavailable { reason },
    }
}

/// The meaning of a commit that failed. When the disk failed under it, the frames may be in the
/// write-ahead log all the same and come back at the next start.
pub(super) fn at_commit(error: &Sql, place: &str) -> Error {
    match before_commit(error, place) {
        Error::Unavailable { reason } if error.sqlite_error_code() == Some(ErrorCode::SystemIoFailure) => {
            Error::Unknown { reason }
        }
        other => other,
    }
}
