//! Enters a mount namespace with a tree of files of its own. What runs between fork and exec makes system calls only:
//! their arguments are prepared before, as C strings.

use std::ffi::{CStr, CString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, open};
use nix::libc;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::stat::{FchmodatFlags, Mode, fchmodat};
use nix::sys::statvfs::{FsFlags, statvfs};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, chdir, chroot, fork, getegid, geteuid, mkdir, symlinkat, write};

use super::layout::Step;

/// A tree of files, as arguments of system calls.
#[derive(Debug)]
pub struct View {
    scratch: CString,
    layers: CString,
    root: CString,
    /// The working folder of the program.
    folder: CString,
    calls: Vec<Call>,
    uid_map: CString,
    gid_map: CString,
}

/// A [`Step`] with the arguments of its system calls.
#[derive(Debug)]
struct Call {
    /// Where the tree gets it.
    to: CString,
    action: Action,
}

/// What a [`Call`] puts into the tree.
#[derive(Debug)]
enum Action {
    Overlay {
        from: CString,
        /// The folders of what is written: both, and above both.
        layers: [CString; 3],
        options: CString,
        /// The options in a user namespace.
        of_user: CString,
    },
    Real(CString),
    Folder(Mode),
    File(CString),
    Link(CString),
}

fn c_string(path: impl AsRef<Path>) -> io::Result<CString> {
    Ok(CString::new(path.as_ref().as_os_str().as_bytes())?)
}

/// `path` in the options of an overlay, where commas and colons separate.
fn escaped(path: &Path) -> Vec<u8> {
    let bytes = path.as_os_str().as_bytes().iter();
    bytes
        .flat_map(|byte| match byte {
            b',' | b':' | b'\\' => vec![b'\\', *byte],
            byte => vec![*byte],
        })
        .collect()
}

impl View {
    /// The tree of `steps`, built in the empty folder `scratch`, for a program that starts in `folder`.
    ///
    /// # Errors
    ///
    /// A path has a zero byte.
    pub fn new(scratch: &Path, folder: &Path, steps: &[Step]) -> io::Result<Self> {
        let (root, layers) = (scratch.join("root"), scratch.join("layers"));
        let calls = steps.iter().enumerate().map(|(number, step)| {
            let path = step.path();
            Ok(Call {
                to: c_string(root.join(path.strip_prefix("/").unwrap_or(path)))?,
                action: Action::new(step, &layers.join(number.to_string()))?,
            })
        });
        let map = |id: u32| CString::new(format!("{id} {id} 1"));
        Ok(Self {
            scratch: c_string(scratch)?,
            layers: c_string(&layers)?,
            root: c_string(&root)?,
            folder: c_string(folder)?,
            calls: calls.collect::<io::Result<_>>()?,
            uid_map: map(geteuid().as_raw())?,
            gid_map: map(getegid().as_raw())?,
        })
    }

    /// Enters it in a process that does nothing else.
    ///
    /// # Errors
    ///
    /// The system does not allow it.
    pub fn try_out(&self) -> io::Result<()> {
        // SAFETY: the new process makes system calls only, and ends.
        match unsafe { fork() }? {
            ForkResult::Child => {
                let code = self.enter().map_or_else(|error| error as i32, |()| 0);
                // SAFETY: it ends the process, and runs nothing else.
                unsafe { libc::_exit(code) }
            }
            ForkResult::Parent { child } => loop {
                match waitpid(child, None) {
                    Err(Errno::EINTR) => {}
                    Ok(WaitStatus::Exited(_, 0)) => return Ok(()),
                    Ok(WaitStatus::Exited(_, code)) => {
                        return Err(io::Error::from_raw_os_error(code));
                    }
                    Ok(_) => return Err(io::ErrorKind::Other.into()),
                    Err(error) => return Err(error.into()),
                }
            },
        }
    }

    /// Makes this process, and those that it starts, see the tree.
    ///
    /// # Errors
    ///
    /// The system does not allow it; the process may not go on then.
    pub fn enter(&self) -> nix::Result<()> {
        let of_user = self.leave_namespaces()?;
        const NONE: Option<&CStr> = None;
        let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
        mount(NONE, c"/", NONE, private, NONE)?;
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
        let memory = Some(c"tmpfs");
        mount(memory, &*self.scratch, memory, flags, Some(c"mode=0755"))?;
        if of_user {
            check_attributes(&self.scratch)?;
        }
        mkdir(&*self.layers, Mode::S_IRWXU)?;
        self.calls.iter().try_for_each(|call| call.make(of_user))?;
        chroot(&*self.root)?;
        chdir(&*self.folder)
    }

    /// Enters a new mount namespace, and a new user namespace if that needs one, which is returned.
    fn leave_namespaces(&self) -> nix::Result<bool> {
        if unshare(CloneFlags::CLONE_NEWNS).is_ok() {
            return Ok(false);
        }
        unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS)?;
        for (file, text) in [
            (c"/proc/self/setgroups", c"deny"),
            (c"/proc/self/uid_map", &*self.uid_map),
            (c"/proc/self/gid_map", &*self.gid_map),
        ] {
            write(open(file, OFlag::O_WRONLY, Mode::empty())?, text.to_bytes())?;
        }
        Ok(true)
    }
}

impl Action {
    /// That of `step`; an overlay keeps what is written in the folder `layer`.
    fn new(step: &Step, layer: &Path) -> io::Result<Self> {
        Ok(match step {
            Step::Overlay(folder) => {
                let (upper, work) = (layer.join("upper"), layer.join("work"));
                let mut options = Vec::new();
                for (name, path) in [
                    ("lowerdir=", folder.as_path()),
                    (",upperdir=", &upper),
                    (",workdir=", &work),
                ] {
                    options.extend_from_slice(name.as_bytes());
                    options.extend(escaped(path));
                }
                let of_user = [&options[..], b",userxattr"].concat();
                Self::Overlay {
                    from: c_string(folder)?,
                    layers: [c_string(layer)?, c_string(&upper)?, c_string(&work)?],
                    options: CString::new(options)?,
                    of_user: CString::new(of_user)?,
                }
            }
            Step::Real(folder) => Self::Real(c_string(folder)?),
            Step::Folder(_, mode) => Self::Folder(Mode::from_bits_truncate(*mode)),
            Step::File(file) => Self::File(c_string(file)?),
            Step::Link(_, target) => Self::Link(c_string(target)?),
        })
    }
}

impl Call {
    fn make(&self, of_user: bool) -> nix::Result<()> {
        const NONE: Option<&CStr> = None;
        let to = &*self.to;
        match &self.action {
            Action::Overlay {
                from,
                layers,
                options,
                of_user: options_of_user,
            } => {
                folder(to)?;
                // The upper folder is the one that the program sees.
                let mode = Mode::from_bits_truncate(0o755);
                layers.iter().try_for_each(|layer| mkdir(&**layer, mode))?;
                let options = if of_user { options_of_user } else { options };
                let overlay = Some(c"overlay");
                mount(overlay, to, overlay, MsFlags::empty(), Some(&**options))
                    // Not every file system can be below an overlay.
                    .or_else(|_| bind_read_only(from, to))
            }
            Action::Real(from) => {
                folder(to)?;
                let flags = MsFlags::MS_BIND | MsFlags::MS_REC;
                mount(Some(&**from), to, NONE, flags, NONE)
            }
            Action::Folder(mode) => {
                folder(to)?;
                fchmodat(AT_FDCWD, to, *mode, FchmodatFlags::FollowSymlink)
            }
            Action::File(from) => {
                drop(open(to, OFlag::O_CREAT | OFlag::O_WRONLY, Mode::S_IRWXU)?);
                bind_read_only(from, to)
            }
            Action::Link(target) => symlinkat(&**target, AT_FDCWD, to),
        }
    }
}

/// Makes the folder `path`, if it is not there.
fn folder(path: &CStr) -> nix::Result<()> {
    match mkdir(path, Mode::from_bits_truncate(0o755)) {
        Ok(()) | Err(Errno::EEXIST) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Shows `from` at `to`, where it cannot be changed.
fn bind_read_only(from: &CStr, to: &CStr) -> nix::Result<()> {
    const NONE: Option<&CStr> = None;
    mount(Some(from), to, NONE, MsFlags::MS_BIND, NONE)?;
    // In a user namespace the flags of the mount below have to stay.
    let there = statvfs(to)?.flags();
    let mut flags = MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_RDONLY;
    for (has, keep) in [
        (FsFlags::ST_NOSUID, MsFlags::MS_NOSUID),
        (FsFlags::ST_NODEV, MsFlags::MS_NODEV),
        (FsFlags::ST_NOEXEC, MsFlags::MS_NOEXEC),
        (FsFlags::ST_NOATIME, MsFlags::MS_NOATIME),
        (FsFlags::ST_NODIRATIME, MsFlags::MS_NODIRATIME),
        (FsFlags::ST_RELATIME, MsFlags::MS_RELATIME),
    ] {
        flags.set(keep, there.contains(has));
    }
    mount(NONE, to, NONE, flags, NONE)
}

/// An overlay in a user namespace keeps what it knows of a folder in attributes of this name. Without them it cannot make a
/// folder anew that was removed. Memory has them from Linux 6.6 on.
fn check_attributes(folder: &CStr) -> nix::Result<()> {
    let name = c"user.overlay.opaque";
    // SAFETY: the strings end in a zero, and the value has one byte.
    let set = unsafe { libc::setxattr(folder.as_ptr(), name.as_ptr(), c"n".as_ptr().cast(), 1, 0) };
    Errno::result(set).map(drop)
}
