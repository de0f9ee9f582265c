//! Enters a mount namespace with a tree of files of its own. What runs between fork and exec makes system calls only:
//! their arguments are prepared before, as C strings.

use std::ffi::{CStr, CString};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, open};
use nix::libc;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::stat::{FchmodatFlags, Mode, fchmodat};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, chdir, chroot, fork, getegid, geteuid, mkdir, write};

use super::layout::{self, KERNEL};

/// A tree of files, as arguments of system calls.
///
/// Its base is the real tree, which cannot be written. Above are the overlays, and above them the folders that the program
/// has as they are.
#[derive(Debug)]
pub struct View {
    /// An empty folder, in which the tree is built.
    scratch: CString,
    layers: CString,
    root: CString,
    /// The working folder of the program.
    folder: CString,
    of_administrator: Vec<Overlay>,
    of_user: Vec<Overlay>,
    /// From where, and to where in the tree.
    real: Vec<(CString, CString)>,
    uid_map: CString,
    gid_map: CString,
}

/// An overlay over a folder.
#[derive(Debug)]
struct Overlay {
    from: CString,
    to: CString,
    /// The folders of what is written: above both, then the upper layer and what the system needs beside it.
    layers: [CString; 3],
    mode: Mode,
    options: CString,
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
    /// The tree for a program that starts in `folder` and can change `real`, built in the empty folder `scratch`.
    ///
    /// # Errors
    ///
    /// The system does not tell what is mounted where, or a folder is not there.
    pub fn new(scratch: &Path, folder: &Path, real: &[&Path]) -> io::Result<Self> {
        let (root, layers) = (scratch.join("root"), scratch.join("layers"));
        let mounts = layout::mount_points()?;
        let user = geteuid().as_raw();
        let overlays = |folders: Vec<PathBuf>, more: &str| -> io::Result<Vec<Overlay>> {
            let numbered = folders.iter().enumerate();
            let overlay = |(number, folder): (usize, &PathBuf)| {
                Overlay::new(folder, &root, &layers.join(number.to_string()), more)
            };
            numbered.map(overlay).collect()
        };
        let kernel = KERNEL.iter().map(PathBuf::from);
        let real = real.iter().map(|folder| folder.canonicalize());
        let real = kernel.map(Ok).chain(real).map(|folder| {
            let folder = folder?;
            Ok((c_string(&folder)?, c_string(within(&root, &folder))?))
        });
        let map = |id: u32| CString::new(format!("{id} {id} 1"));
        Ok(Self {
            scratch: c_string(scratch)?,
            layers: c_string(&layers)?,
            root: c_string(&root)?,
            folder: c_string(folder)?,
            of_administrator: overlays(layout::of_administrator(&mounts), "")?,
            of_user: overlays(layout::of_user(user, folder), ",userxattr")?,
            real: real.collect::<io::Result<_>>()?,
            uid_map: map(user)?,
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
        let is_administrator = self.leave_namespaces()?;
        mount(
            NONE,
            c"/",
            NONE,
            MsFlags::MS_REC | MsFlags::MS_PRIVATE,
            NONE,
        )?;
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
        let memory = Some(c"tmpfs");
        mount(memory, &*self.scratch, memory, flags, Some(c"mode=0755"))?;
        let overlays = match is_administrator {
            true => &self.of_administrator,
            false => {
                check_attributes(&self.scratch)?;
                &self.of_user
            }
        };
        mkdir(&*self.layers, Mode::S_IRWXU)?;
        mkdir(&*self.root, Mode::S_IRWXU)?;
        bind(c"/", &self.root)?;
        forbid_writes(&self.root)?;
        overlays.iter().try_for_each(Overlay::make)?;
        self.real.iter().try_for_each(|(from, to)| bind(from, to))?;
        chroot(&*self.root)?;
        chdir(&*self.folder)
    }

    /// Enters a new mount namespace, and a new user namespace if this is no administrator's process. Returns whether it is.
    fn leave_namespaces(&self) -> nix::Result<bool> {
        if unshare(CloneFlags::CLONE_NEWNS).is_ok() {
            return Ok(true);
        }
        unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS)?;
        for (file, text) in [
            (c"/proc/self/setgroups", c"deny"),
            (c"/proc/self/uid_map", &*self.uid_map),
            (c"/proc/self/gid_map", &*self.gid_map),
        ] {
            write(open(file, OFlag::O_WRONLY, Mode::empty())?, text.to_bytes())?;
        }
        Ok(false)
    }
}

/// `path` in the tree `root`.
fn within(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

impl Overlay {
    /// The overlay over `folder` in the tree `root`, with `more` options; what is written goes into the folder `layer`.
    fn new(folder: &Path, root: &Path, layer: &Path, more: &str) -> io::Result<Self> {
        let (upper, work) = (layer.join("upper"), layer.join("work"));
        let mut options = Vec::new();
        for (name, path) in [
            ("lowerdir=", folder),
            (",upperdir=", &upper),
            (",workdir=", &work),
        ] {
            options.extend_from_slice(name.as_bytes());
            options.extend(escaped(path));
        }
        options.extend_from_slice(more.as_bytes());
        let mode = fs::metadata(folder)?.permissions().mode();
        Ok(Self {
            from: c_string(folder)?,
            to: c_string(within(root, folder))?,
            layers: [c_string(layer)?, c_string(&upper)?, c_string(&work)?],
            mode: Mode::from_bits_truncate(mode & 0o7777),
            options: CString::new(options)?,
        })
    }

    fn make(&self) -> nix::Result<()> {
        for layer in &self.layers {
            mkdir(&**layer, Mode::S_IRWXU)?;
        }
        // The upper folder is the one that the program sees.
        let [_, upper, _] = &self.layers;
        fchmodat(AT_FDCWD, &**upper, self.mode, FchmodatFlags::FollowSymlink)?;
        let (kind, options) = (Some(c"overlay"), Some(&*self.options));
        mount(kind, &*self.to, kind, MsFlags::empty(), options).or_else(|_| {
            // Not every file system can be below an overlay.
            bind(&self.from, &self.to)?;
            forbid_writes(&self.to)
        })
    }
}

const NONE: Option<&CStr> = None;

/// Shows the folder `from` at `to`, with all that is mounted below it.
fn bind(from: &CStr, to: &CStr) -> nix::Result<()> {
    mount(
        Some(from),
        to,
        NONE,
        MsFlags::MS_BIND | MsFlags::MS_REC,
        NONE,
    )
}

/// Makes all that is mounted at `path` and below it read-only (mount_setattr(2), since Linux 5.12).
fn forbid_writes(path: &CStr) -> nix::Result<()> {
    let attributes = libc::mount_attr {
        attr_set: libc::MOUNT_ATTR_RDONLY,
        attr_clr: 0,
        propagation: 0,
        userns_fd: 0,
    };
    // SAFETY: the string ends in a zero, and the size is that of the structure.
    let set = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            libc::AT_FDCWD,
            path.as_ptr(),
            libc::AT_RECURSIVE,
            &raw const attributes,
            size_of::<libc::mount_attr>(),
        )
    };
    Errno::result(set).map(drop)
}

/// An overlay in a user namespace keeps what it knows of a folder in attributes of this name. Without them it cannot make a
/// folder anew that was removed. Memory has them from Linux 6.6 on.
fn check_attributes(folder: &CStr) -> nix::Result<()> {
    let name = c"user.overlay.opaque";
    // SAFETY: the strings end in a zero, and the value has one byte.
    let set = unsafe { libc::setxattr(folder.as_ptr(), name.as_ptr(), c"n".as_ptr().cast(), 1, 0) };
    Errno::result(set).map(drop)
}
