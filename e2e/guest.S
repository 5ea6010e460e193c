# The guest of the end-to-end tests: one boot sector, no operating system.
#
# It reports its virtio disks on the serial port, so that a test does not
# depend on what Nova, libvirt or QEMU say:
#
#     DISKS 1 2 3;       sizes in GiB, in the order of the PCI slots
#     OFF                the ACPI power button was pressed
#
# It reports again after each hot plug and unplug.  It does the guest's part of
# ACPI hot plug: it gives a new disk an I/O range, and ejects a disk when the
# host requests it, so that an ordinary detach works.  It powers off when the
# power button is pressed, which a soft reboot does.
#
# If guest.py sets a flag, it writes a counter to its first two disks, about
# once a second and continuing from the last value, and reports after every
# fourth write.
#
# Machine type pc: power management at 0x600, PCI hot plug at 0xae00.

        .code16
        .globl  _start
_start:
        cli
        xorw    %ax, %ax
        movw    %ax, %ds
        movw    %ax, %es
        movw    %ax, %ss
        movw    $0x7c00, %sp
        cld
        movw    $packet, %si            # read the last counter
        movw    $0x4280, %ax
        movb    %al, %dl
        int     $0x13
        movl    $1, packet              # from now on: to be written

report:
        xorw    %ax, %ax
        movw    %ax, %es
        movw    $bases, %di
        movw    $disks, %si
        call    print
        movl    $0x80000000, %ebx       # bus 0, slot 0, function 0
scan:
        xorb    %cl, %cl                # register 0: device and vendor
        call    read
        cmpl    $0x10011af4, %eax       # virtio-blk, transitional
        jne     further
        movb    $0x10, %cl              # register 0x10: the I/O range
        call    read
        testw   $0xfffc, %ax
        jnz     placed
        movl    %ebx, %eax              # hot plugged: give it a range,
        shrl    $4, %eax                # 0x80 ports for each slot
        addw    $0xd000, %ax
        movzwl  %ax, %eax
        call    write
        movb    $0x04, %cl              # command: answer to I/O
        movl    $0x00000007, %eax
        call    write
        movb    $0x10, %cl
        call    read
placed:
        andw    $0xfffc, %ax
        movw    %ax, %bp
        addw    $0x14, %ax              # capacity in sectors, lower half
        movw    %ax, %dx
        inl     %dx, %eax
        shrl    $21, %eax
        addb    $'0', %al
        movb    %al, size
        movw    $disk, %si
        call    print
        cmpb    $0, counts
        je      further
        cmpw    $bases + 4, %di
        je      further
        movw    %bp, %ax
        scasw
        je      further                 # it has its queue already
        movw    %ax, -2(%di)
        movb    $0x04, %cl              # command: master of the bus, too
        movl    $0x00000007, %eax
        call    write
        movw    %di, %ax                # page 0x14 or 0x18 is its queue
        addw    %ax, %ax
        movzbl  %al, %eax
        pushl   %eax
        shlw    $8, %ax
        movw    %ax, %es
        pushw   %di
        xorw    %di, %di
        xorw    %ax, %ax
        movw    $0x1800, %cx
        rep stosw
        xorw    %di, %di
        movw    $request, %si
        movw    $32, %cx
        rep movsb
        popw    %di
        incb    %es:0x1000              # no interrupts
        movw    %ax, %es
        leaw    0x12(%bp), %dx
        outb    %al, %dx                # reset
        subw    $10, %dx
        popl    %eax
        outl    %eax, %dx
        addw    $10, %dx
        movb    $7, %al                 # here we go
        outb    %al, %dx
further:
        addl    $0x800, %ebx
        cmpl    $0x80010000, %ebx
        jb      scan
        movw    $end, %si
        call    print

        movw    $0x602, %dx             # let the power button be seen
        movw    $0x0100, %ax
        outw    %ax, %dx
wait:
        sti
        hlt                             # until the next timer tick
        testb   $0x0f, 0x46c            # the BIOS's count of them
        jnz     plugged
        cmpb    $0, counts
        je      plugged
        movw    $0x1400, %cx
        movw    $bases, %si
another:
        movw    %cx, %es
        movw    %es:0x1002, %ax         # of the last one
        cmpw    %es:0x2002, %ax
        jne     plugged                 # not yet done
        incw    %es:0x1002
        lodsw
        addw    $0x10, %ax
        movw    %ax, %dx
        xorw    %ax, %ax
        outw    %ax, %dx
        addb    $4, %ch
        cmpb    $0x1c, %ch
        jne     another
        incl    count
        testb   $0x03, count
        jz      report
plugged:
        movw    $0xae00, %dx            # plugged since the last look
        inl     %dx, %eax
        testl   %eax, %eax
        jnz     report
        movw    $0xae04, %dx            # the host wants a slot back
        inl     %dx, %eax
        testl   %eax, %eax
        jz      button
        movw    $0xae08, %dx
        outl    %eax, %dx               # eject
        jmp     report
button:
        movw    $0x600, %dx
        inw     %dx, %ax
        testw   $0x0100, %ax
        jz      wait
        movw    $off, %si
        call    print
        movw    $0x604, %dx             # soft off
        movw    $0x2000, %ax
        outw    %ax, %dx
halt:
        cli
        hlt
        jmp     halt

# Read or write %eax at PCI configuration register %cl of function %ebx.
read:
        call    select
        inl     %dx, %eax
        ret
write:
        pushl   %eax
        call    select
        popl    %eax
        outl    %eax, %dx
        ret
select:
        movl    %ebx, %eax
        movb    %cl, %al
        movw    $0xcf8, %dx
        outl    %eax, %dx
        movw    $0xcfc, %dx
        ret

print:
        lodsb
        testb   %al, %al
        jz      printed
        movb    %al, %ah
        movw    $0x3fd, %dx
busy:
        inb     %dx, %al
        testb   $0x20, %al
        jz      busy
        movb    %ah, %al
        movw    $0x3f8, %dx
        outb    %al, %dx
        jmp     print
printed:
        ret

disks:  .asciz  "DISKS"
disk:   .ascii  " "
size:   .asciz  "0"
end:    .asciz  ";\r\n"
off:    .asciz  "OFF\r\n"
request:
        .long   packet, 0               # head and data; another follows
        .long   16 + 512, 0x00010001
        .long   0x8200, 0               # outcome: the device writes it
        .long   1, 2
        .set    bases, 0x8208
        .org    493
counts: .byte   0                       # whether it is to
packet: .byte   16, 0                   # of the BIOS, and then of virtio
        .word   1, count, 0
        .quad   2047
count:  .word   0xaa55                  # later the sector with the count
